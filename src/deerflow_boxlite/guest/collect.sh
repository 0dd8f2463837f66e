# Collects one stream of the commands of a channel: `sh -c <this text> sh PIPE ENDED`, its standard output the file.
#
# A command writes to a pipe and not to the file, since a program that opens /dev/stderr again would truncate a file.
# This reads on for as long as anything holds the pipe, so that no background child ever gets SIGPIPE or blocks: into
# the file until the channel sends TERM or the file cannot be written (which ENDED tells), into nothing after that.
exec 3<"$1"
collecting=
trap 'kill $collecting' TERM
cat <&3 &
collecting=$!
exec >/dev/null
wait $collecting
: >"$2"
exec cat <&3
