# shellcheck shell=sh
# Collects one stream of the commands of a channel: `sh -c <this text> sh ENDED`. Descriptor 7 is the pipe to read.
#
# A command writes to a pipe and not to the file, since a program that opens /dev/stderr again would truncate a file.
# This reads on for as long as anything holds the pipe, so that no background child ever gets SIGPIPE or blocks: into
# the file that is its standard output until the channel sends TERM or the file cannot be written, which the file ENDED
# tells; into nothing after that. It must not end early: no special built-in may fail here (POSIX, XCU 2.8.1).
trap 'kill $!' TERM
cat <&7 &
exec >/dev/null
wait $!
printf '' >"$1"
exec cat <&7
