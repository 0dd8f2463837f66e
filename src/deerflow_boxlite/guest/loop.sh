# shellcheck shell=sh
# shellcheck disable=SC2034,SC2154 # variables for boot.sh and command.sh; dfb_nl: boot.sh
# Answering requests: one line, one request; see wire.py. boot.sh has the loop.
#
# `read` takes not a byte more than its line, in every shell, since POSIX wants what follows left to other programs.

# What a profile may have set must not change how our own functions run. A command gets its options back (command.sh).
dfb_flags=$-
set +eufCxv
unset IFS

# dfb_call NONCE FUNCTION WORD...: answer one request. FUNCTION prints to standard output, which is the reply: first
# `reply`, then `part` as often as it likes. It must leave IFS unset.
dfb_call() {
	dfb_nonce=$1 dfb_go='' dfb_then='' dfb_said=''
	shift
	"$@" >&4 3<&-
	[ -n "$dfb_go" ] || dfb_end
}

# The end of the reply, and then what is to be done out of the caller's way.
dfb_end() {
	dfb_said="$dfb_said${dfb_nonce}E$dfb_nl"
	dfb_send >&4
	[ -z "$dfb_then" ] || "$dfb_then" 3<&-
}

# reply WORD...: begin the reply. No word may be empty or hold a space or a newline: that is what parts are for.
reply() {
	dfb_said="$dfb_said${dfb_nonce}H $*$dfb_nl"
}

# part [TEXT]: end a part of the reply: TEXT, or what programs have printed since the last one, or since `reply`.
part() {
	dfb_said="$dfb_said${1-}${dfb_nonce}P$dfb_nl"
}

# dfb_send: send what was said so far. For before a program that prints a part: each write to standard output is a message
# of BoxLite's, which costs both sides more than all that the shell does to put a reply together.
dfb_send() {
	[ -z "$dfb_said" ] || printf '%s' "$dfb_said"
	dfb_said=
}

# The answer to a question that is only whether this shell answers.
dfb_ping() {
	reply pong
}
