# shellcheck shell=sh
# What a box does for the copying of its thread's files and skills. Functions of a tool channel: see loop.sh for
# `reply` and `part`. Each works in a subshell, so that the channel's shell stays where and what it was.
#
# STAGE is how the names begin of the files on the root disk in which the host's and the box's copies come and go. BASE
# is where all names are relative to; they are bytes ended by NUL.

# dfb_td_list STAGE BASE LIMIT ROOT...: write what is below the roots to STAGE.list, at most LIMIT bytes. See listing.py.
#
# stat's format has no NUL in every image, so each batch is its stat lines and then its names; where a file goes away in
# between the numbers differ, and the batch is done again file by file.
dfb_td_list() {
	(
		dfb_stage=$1
		dfb_limit=$3
		cd "$2" || exit
		shift 3
		{
			date +%s
			for dfb_root; do
				dfb_td_walk "$dfb_root"
				printf '= %d %s\n' $? "$dfb_root"
			done
			printf '.\n'
		} 2>/dev/null | head -c "$dfb_limit" >"$dfb_stage.list"
	)
	reply "$?"
}

# dfb_td_walk ROOT: list what is below ROOT, which need not exist. What stays in the box (names.py) is not even walked.
dfb_td_walk() {
	[ -e "$1" ] || [ -L "$1" ] || return 0
	case $1 in
	*/workspace)
		find "$1" -type d \( -name node_modules -o -name __pycache__ -o -name .venv -o -name venv -o -name .tox \
			-o -name .nox -o -name .mypy_cache -o -name .pytest_cache \) -prune -o -exec sh -c "$dfb_td_batch" sh {} +
		;;
	*) find "$1" -exec sh -c "$dfb_td_batch" sh {} + ;;
	esac
}

# The text of the shell that find starts for each batch.
# shellcheck disable=SC2016
dfb_td_batch='
f="%f %s %Y %Z %d:%i %h"
if s=$(stat -c "$f" -- "$@" 2>/dev/null); then
	printf "%d\n%s\n" $# "$s"
	printf "%s\0" "$@"
else
	for n; do
		s=$(stat -c "$f" -- "$n" 2>/dev/null) || continue
		printf "1\n%s\n%s\0" "$s" "$n"
	done
fi'

# dfb_td_pack STAGE BASE LIMIT: make STAGE.pack of the files that STAGE.names names: archives one after the other, at
# most LIMIT bytes of them. What is missing is the host's to miss.
dfb_td_pack() {
	(cd "$2" && xargs -0 tar -cf - <"$1.names" 2>/dev/null | head -c "$3" >"$1.pack")
	dfb_status=$?
	rm -f "$1.names" "$1.list"
	reply "$dfb_status"
}

# dfb_td_put STAGE BASE: remove what STAGE.gone names and unpack STAGE.put, as far as they are there. Answers the
# status, the time, and what the tools said.
dfb_td_put() {
	dfb_text=$(
		cd "$2" || exit
		if [ -f "$1.gone" ]; then
			xargs -0 rm -f <"$1.gone" 2>&1 || exit
		fi
		if [ -f "$1.put" ]; then
			tar -xof "$1.put" 2>&1
		fi
	)
	dfb_status=$?
	rm -f "$1.put" "$1.gone" "$1.list"
	reply "$dfb_status" "$(date +%s)"
	part "$dfb_text"
}

# dfb_td_skills STAGE TARGET: put what is in STAGE.put in the place of the directory TARGET, which nobody ever sees
# half-filled. Answers the status and what the tools said.
dfb_td_skills() {
	dfb_text=$(
		if [ -w "${2%/*}/" ]; then
			dfb_td_unpack "$1.put" "$2.new" && chmod -R a+rX,a-w "$2.new" && dfb_td_swap "$2.new" "$2" "$2.old"
		else
			# Only its content is ours to change: the user of the image is not root.
			dfb_td_unpack "$1.put" "$2/.new" && dfb_td_inside "$2"
		fi 2>&1
	)
	dfb_status=$?
	rm -f "$1.put"
	reply "$dfb_status"
	part "$dfb_text"
}

# dfb_td_remove DIRECTORY...: also those without write permission.
dfb_td_remove() {
	chmod -R u+w "$@" 2>/dev/null
	rm -rf "$@"
}

# dfb_td_unpack ARCHIVE DIRECTORY: into a new directory.
dfb_td_unpack() {
	dfb_td_remove "$2"
	mkdir -p "$2" && tar -xof "$1" -C "$2"
}

# dfb_td_swap NEW PLACE OLD: what is at PLACE goes, NEW takes its place.
dfb_td_swap() {
	dfb_td_remove "$3"
	if [ -e "$2" ] || [ -L "$2" ]; then
		mv "$2" "$3" || return
	fi
	mv "$1" "$2" || return
	dfb_td_remove "$3"
}

# dfb_td_inside DIRECTORY: the same for every entry of DIRECTORY, new ones being in its .new.
dfb_td_inside() {
	for dfb_entry in "$1"/*; do
		[ -e "$1/.new/${dfb_entry##*/}" ] || dfb_td_remove "$dfb_entry"
	done
	for dfb_entry in "$1"/.new/*; do
		[ -e "$dfb_entry" ] || continue
		dfb_td_swap "$dfb_entry" "$1/${dfb_entry##*/}" "$1/.old" || return
		chmod -R a+rX,a-w "$1/${dfb_entry##*/}"
	done
	rmdir "$1/.new"
}

# dfb_td_done STAGE: remove what is left over.
dfb_td_done() {
	rm -f "$1.list" "$1.names" "$1.pack" "$1.put" "$1.gone"
	reply 0
}
