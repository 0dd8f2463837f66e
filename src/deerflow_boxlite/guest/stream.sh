# shellcheck shell=sh
# shellcheck disable=SC2034 # dfb_go: boot_stream.sh
# Running one command whose output goes straight to our own standard output and error; see streaming.py.

# dfb_stream NONCE VARIABLES COMMAND: the nonce and our process id come first, the nonce at the end, there on both.
# What the shell itself has to say, of a command that was killed, is not the command's.
dfb_stream() {
	exec 5>&2 2>/dev/null
	printf '%s %s\n' "$1" "$$"
	dfb_mark=$1
	dfb_command "$2" "$3"
}

dfb_done() {
	printf '%s' "$dfb_mark"
	printf '%s' "$dfb_mark" >&5
	exit "$1"
}
