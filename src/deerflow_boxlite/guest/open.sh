# How a channel starts: `sh -c <this text> sh PROGRAM ARGUMENT...`.
#
# The requests move to descriptor 3 and the replies to 4 before any profile is read: one that reads its standard
# input finds it at its end, and what one prints goes nowhere. PROGRAM is the shell that stays, with boot.sh as its -c.
exec 3<&0 4>&1 0</dev/null 1>/dev/null 2>&1
exec "$@"
