# shellcheck shell=sh
# shellcheck disable=SC2034,SC2154 # dfb_go: boot.sh; dfb_flags: loop.sh
# What a command begins with.

# The options that the profile had set, for the commands.
dfb_set=
for dfb_flag in e u f C x v; do
	case $dfb_flags in *$dfb_flag*) dfb_set=$dfb_set$dfb_flag ;; esac
done
dfb_set=${dfb_set:+"set -$dfb_set; "}

# dfb_command VARIABLES COMMAND: have boot.sh run a command. VARIABLES is shell text that sets them (request.py).
# Nothing that the protocol needs may show in it: `set` prints every variable. When memory runs out the kernel ends
# commands before our shells and BoxLite's own processes (proc(5), oom_score_adj).
dfb_command() {
	dfb_go="printf 500 2>/dev/null >/proc/self/oom_score_adj; $1; unset dfb_nonce dfb_stop dfb_line dfb_go dfb_nl dfb_text dfb_out dfb_part dfb_said; $dfb_set$2"
}
