# shellcheck shell=sh
# shellcheck disable=SC2154 # dfb_go, dfb_dir: command.sh
# The text of the shell that stays open; see channel.py. It is put on one line, the first: what a command's errors say
# of lines is then right, since shells count on from the line of an `eval`. For the same reason, and for `return`,
# `local` and the names in messages, a command runs here and not in a function. What a channel's functions are comes as
# the first line of its input: arguments show in `ps`, which is read by people and models.
#
# A function that has a command to run leaves its text in dfb_go (command.sh).
dfb_nl="$(printf '\n_')"; dfb_nl=${dfb_nl%_};
IFS= read -r dfb_line <&3 && eval "$dfb_line";
while IFS= read -r dfb_line <&3; do
	eval "$dfb_line";
	if [ -n "$dfb_go" ]; then
		( eval "$dfb_go" ) </dev/null >"$dfb_dir/out.pipe" 2>"$dfb_dir/err.pipe" 3<&- 4>&- 5>&- 6>&- 8>&- 9>&-;
		dfb_done "$?";
	fi;
done
