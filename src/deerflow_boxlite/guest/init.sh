# shellcheck shell=sh
# Process 1 of a box, in the place of the image's ENTRYPOINT and CMD: reaps orphans, and goes at once at SIGTERM.
#
# `wait` reaps whatever ends, whether it was started here or inherited. A signal ends it, and the trap then runs.
trap 'exit 0' TERM INT
while :; do
	sleep 2147483 &
	wait $!
done
