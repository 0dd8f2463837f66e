# shellcheck shell=sh
# shellcheck disable=SC2034 # variables for boot.sh and command.sh
# Answering requests: one line, one request; see wire.py. boot.sh has the loop.
#
# `read` takes not a byte more than its line, in every shell, since POSIX wants what follows left to other programs.

# What a profile may have set must not change how our own functions run. A command gets its options back (command.sh).
dfb_flags=$-
set +eufCxv
unset IFS

# dfb_call NONCE FUNCTION WORD...: answer one request. FUNCTION prints to standard output, which is the reply: first
# `reply`, then a text and `part` as often as it likes. It must leave IFS unset.
dfb_call() {
	dfb_nonce=$1 dfb_go='' dfb_then=''
	shift
	"$@" >&4 3<&-
	[ -n "$dfb_go" ] || dfb_end
}

# The end of the reply, and then what is to be done out of the caller's way.
dfb_end() {
	printf '%sE\n' "$dfb_nonce" >&4
	[ -z "$dfb_then" ] || "$dfb_then" 3<&-
}

# reply WORD...: begin the reply. No word may be empty or hold a space or a newline: that is what parts are for.
reply() {
	printf '%sH %s\n' "$dfb_nonce" "$*"
}

# part: end a part of the reply: the text since the last one, or since `reply`.
part() {
	printf '%sP\n' "$dfb_nonce"
}

# The answer to a question that is only whether this shell answers.
dfb_ping() {
	reply pong
}
