# shellcheck shell=sh
# Looking at what an image offers, with what the shell itself can do: this is part of every boot.

# dfb_look PROGRAM...: reply with the user's uid and gid, the path of bash or `none`, and which programs there are not.
dfb_look() {
	dfb_uid='' dfb_gid='' dfb_missing=
	# shellcheck disable=SC2034 # the real id is followed by the effective, the saved and the file system's
	while read -r dfb_key dfb_real dfb_others; do
		case $dfb_key in
		Uid:) dfb_uid=$dfb_real ;;
		Gid:) dfb_gid=$dfb_real ;;
		esac
	done </proc/self/status
	for dfb_program in "$@"; do
		command -v "$dfb_program" >/dev/null || dfb_missing="$dfb_missing $dfb_program"
	done
	dfb_bash=$(command -v bash) || dfb_bash=none
	# shellcheck disable=SC2086 # names
	reply "$dfb_uid" "$dfb_gid" "$dfb_bash" $dfb_missing
}
