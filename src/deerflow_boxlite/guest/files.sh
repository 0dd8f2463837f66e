# shellcheck shell=sh
# Files in a box, for files.py. Functions of a tool channel: see loop.sh for `reply` and `part`.
#
# Every process here costs a caller some milliseconds, so what the shell can do itself it does. What went wrong is told
# in the words of strerror(3), in English (LC_ALL=C), at the end of a tool's message: files_errors.py knows them.

# New files are 0644, whatever the image's profile says.
umask 022

# dfb_why PATH TEXT: answer that an operation failed, in stat(2)'s words if it cannot find PATH, else by TEXT.
dfb_why() {
	dfb_stat_text=$(ls -dL -- "$1" 2>&1 >/dev/null) && dfb_stat_text=$2
	reply error
	part "$dfb_stat_text"
}

# dfb_regular PATH: whether it is a regular file, or answer why not. Opening anything else may hang or never end.
dfb_regular() {
	[ -f "$1" ] && return
	if [ -d "$1" ]; then
		dfb_why "$1" 'Is a directory'
	else
		dfb_why "$1" 'Invalid argument'
	fi
	return 1
}

# dfb_read PATH LIMIT: the first LIMIT bytes of a file, and the message of a failure, which may be empty.
dfb_read() {
	dfb_regular "$1" || return 0
	reply data
	dfb_send
	dfb_text=$(head -c "$2" "$1" 2>&1 >&4)
	part
	part "$dfb_text"
}

# dfb_range PATH FIRST COUNT OUT LIMIT: cut COUNT lines (`-`: all) from line FIRST out of a file into OUT, and answer as
# dfb_read does for OUT. tail | head is several times as fast as sed over a large file, with GNU tools and in busybox.
dfb_range() {
	dfb_regular "$1" || return 0
	if [ "$3" = - ]; then
		dfb_text=$(tail -n "+$2" "$1" 2>&1 >"$4")
	elif [ "$2" = 1 ]; then
		dfb_text=$(head -n "$3" "$1" 2>&1 >"$4")
	else
		dfb_text=$( { tail -n "+$2" "$1" | head -n "$3" >"$4"; } 2>&1)
	fi
	reply data
	dfb_send
	head -c "$5" "$4"
	part
	part "$dfb_text"
}

# dfb_stat PATH: the size of a readable regular file, and whether PATH has no symbolic link in it (`direct`).
dfb_stat() {
	dfb_regular "$1" || return 0
	if ! [ -r "$1" ]; then
		dfb_why "$1" 'Permission denied'
		return
	fi
	dfb_path=$1
	dfb_size "$1" || return 0
	dfb_text=indirect
	if ! [ -L "$dfb_path" ] && cd -P "${dfb_path%/*}/" && [ "${PWD%/}" = "${dfb_path%/*}" ]; then
		dfb_text=direct
	fi
	cd / || return
	reply file "$dfb_bytes" "$dfb_text"
}

# dfb_size PATH: set dfb_bytes, or answer why not.
dfb_size() {
	dfb_text=$(ls -ldnL -- "$1" 2>&1) || {
		dfb_why "$1" "$dfb_text"
		return 1
	}
	dfb_fields "$dfb_text"
}

# dfb_fields LINE: what `ls -ln` says of a file, as dfb_letters, dfb_owner and dfb_bytes.
dfb_fields() {
	set -f
	# shellcheck disable=SC2086 # to be split
	set -- $1
	set +f
	# shellcheck disable=SC2034 # for files_write.sh
	dfb_letters=$1 dfb_owner=$3:$4 dfb_bytes=$5
}

# dfb_copy PATH OUT LIMIT: copy the first LIMIT bytes of a file to OUT, on the root disk.
dfb_copy() {
	dfb_regular "$1" || return 0
	if dfb_text=$(head -c "$3" "$1" 2>&1 >"$2"); then
		reply data
	else
		rm -f "$2"
		dfb_why "$1" "$dfb_text"
	fi
}

# dfb_part PATH OUT SKIP LENGTH: copy LENGTH bytes of a file, from MiB number SKIP, to OUT. dd seeks, tail may not.
dfb_part() {
	dfb_regular "$1" || return 0
	if dfb_text=$(dd if="$1" of="$2" bs=1048576 skip="$3" count=$((($4 + 1048575) / 1048576)) 2>&1); then
		reply data
	else
		dfb_text=$(head -c 1 "$1" 2>&1 >"$2")
		rm -f "$2"
		dfb_why "$1" "${dfb_text:-Input/output error}"
	fi
}

# dfb_join PART PATH: add a staged part to a staged file.
dfb_join() {
	dfb_text=$(cat "$1" 2>&1 >>"$2") && dfb_status=0 || dfb_status=1
	rm -f "$1"
	if [ "$dfb_status" = 0 ]; then
		reply ok
	else
		rm -f "$2"
		dfb_why / "$dfb_text"
	fi
}

# dfb_remove PATH...: remove our own files.
dfb_remove() {
	rm -f "$@" && reply ok
}

# dfb_clear PATH...: empty our own files, which will be used again.
dfb_clear() {
	for dfb_path; do
		: >"$dfb_path"
	done
	reply ok
}

# dfb_room PATH...: remove files that did not come whole, and answer how many KiB were left on the disk of the first.
dfb_room() {
	dfb_text=$(df -Pk "${1%/*}" | tail -n 1)
	rm -f "$@"
	dfb_fields "$dfb_text"
	reply room "${dfb_owner#*:}"
}
