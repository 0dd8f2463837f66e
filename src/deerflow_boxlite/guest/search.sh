# shellcheck shell=sh
# Walking and searching a tree in a box, for files.py and search.py; goes with files.sh and files_write.sh.
#
# All walks start as `cd ROOT; find .`: names on the wire are short, and no root can be taken for an option.

# dfb_enter DIRECTORY: go there, or answer why not.
dfb_enter() {
	if ! [ -d "$1" ]; then
		dfb_why "$1" 'Not a directory'
	elif ! cd "$1/" || ! [ -r . ]; then
		cd /
		dfb_why "$1" 'Permission denied'
	else
		return 0
	fi
	return 1
}

# Run by find for symbolic links, which are few: tells those that lead to a directory from the others.
# shellcheck disable=SC2016 # for another shell
dfb_links='for link; do
	if [ -d "$link" ]; then printf "d%s\0" "$link"; else printf "l%s\0" "$link"; fi
done >&5'

# dfb_into FUNCTION WORD...: call a function with the file dfb_out, emptied, as descriptor 7, and set dfb_bytes to how much
# was written to it: the position of the descriptor, which all who write have in common.
dfb_into() {
	{
		"$@"
		# shellcheck disable=SC2034 # the word is "pos:"
		read -r dfb_word dfb_bytes <"/proc/self/fdinfo/7"
	} 7>"$dfb_out" || {
		cd / || return
		dfb_unopened "$dfb_out"
		return 1
	}
	cd / || return
}

# A redirection that failed has told nobody why.
dfb_unopened() {
	dfb_text=$( (: >"$1") 2>&1)
	dfb_failed "${dfb_text:-Input/output error}"
}

# dfb_found LIMIT: the parts of an answer: what was found, if that is at most LIMIT bytes, and the last line of dfb_text.
dfb_found() {
	if [ "$dfb_bytes" -le "$1" ]; then
		dfb_send
		head -c "$1" "$dfb_out"
	fi
	part
	part "${dfb_text##*"$dfb_nl"}"
}

# dfb_walk ROOT OUT LIMIT DIRECTORIES NAME TEST...: list a tree into OUT. The answer is the size of the list, the exit
# status of find, the list if that is at most LIMIT bytes, and find's last message.
#
# TEST is what find is to see first: -maxdepth, and what to prune. Directories named DIRECTORIES are printed twice, other
# files named NAME once: "./a/b" and a NUL. Then come links named NAME: "d./a" (to a directory) or "l./a", and a NUL, and
# at the very end "/" and a NUL: without these, it is not whole.
dfb_walk() {
	dfb_enter "$1" || return 0
	dfb_out=$2 dfb_limit=$3
	shift 3
	dfb_into dfb_list "$@" || return 0
	reply data "$dfb_bytes" "$dfb_status"
	dfb_found "$dfb_limit"
}

dfb_list() {
	dfb_directories=$1 dfb_name=$2
	shift 2
	dfb_text=$(find . "$@" -type d -name "$dfb_directories" -print0 -print0 -o \
		! -type d ! -type l -name "$dfb_name" -print0 -o \
		-type l -name "$dfb_name" -exec sh -c "$dfb_links" sh {} + 2>&1 >&7 5>"$dfb_out.links")
	dfb_status=$?
	if [ -s "$dfb_out.links" ]; then
		cat "$dfb_out.links" >&7
		: >"$dfb_out.links"
	fi
	printf '/\0' >&7
}

# Run by find for many files at once. Only text is searched: by DeerFlow's rule a file without a NUL in its first 8 KiB.
# Names that cannot be told from what grep prints after them (`odd`) come first, every line of a name after a "/", then "=".
#
# A grep that nobody reads any more ends the walk; one that was killed is told of.
# shellcheck disable=SC2016 # for another shell
dfb_grep='how=$1 option=$2 pattern=$3
nl="
"
ended() {
	case $1 in
	141) kill "$PPID" ;;
	0 | 1 | 2) ;;
	*) echo "grep ended with exit code $1" >&2 ;;
	esac
}
is_text() {
	case $(head -c 8192 "$1" | tr "\000\060" "\060x") in *0*) return 1 ;; esac
}
shift 3
case $how in
exact)
	hits=$(grep -la "$option" -e "$pattern" "$@")
	ended $?
	[ -n "$hits" ] || exit 0
	set -f
	IFS=$nl
	set -- $hits
	if [ "$(head -q -c 8192 "$@" | tr -cd "\000" | head -c 1 | tr "\000" 0)" = 0 ]; then
		for file; do
			shift
			! is_text "$file" || set -- "$@" "$file"
		done
	fi
	[ $# = 0 ] || grep -Hna "$option" -e "$pattern" "$@"
	ended $?
	;;
odd)
	for file; do
		is_text "$file" || continue
		rest=$file
		while :; do
			case $rest in
			*"$nl"*)
				printf "/%s\n" "${rest%%"$nl"*}"
				rest=${rest#*"$nl"}
				;;
			*) break ;;
			esac
		done
		printf "/%s\n=\n" "$rest"
		grep -na "$option" -e "$pattern" <"$file"
		ended $?
	done
	;;
esac'

# dfb_search ROOT OUT LIMIT HOW FIRST WINDOW OPTION PATTERN NAME SIZE TEST...: the lines that a pattern matches in text
# files named NAME and smaller than SIZE bytes. `quick` leaves it to GNU's grep what is text, at the price of one process:
# where it meets a NUL, wherever in a file that is, it leaves out lines, but says so. Then the search has to be done again,
# `exact`, as it is at once where grep is another. Of the whole, WINDOW bytes from byte FIRST (1 or more) are put into OUT.
# The answer is their size, what is in OUT if that is at most LIMIT bytes, and a message if that failed.
#
# Lines are "./path:number:line" or, after an odd name, "number:line"; "?" or "Binary file ... matches" when a quick search
# met what GNU's grep (since 3.5, or before) took for binary; and the last one is "=", the exit status of find, a space and
# its last message.
dfb_search() {
	dfb_enter "$1" || return 0
	dfb_out=$2 dfb_limit=$3 dfb_how=$4 dfb_first=$5 dfb_window=$6
	[ "$dfb_how" = exact ] || dfb_is_gnu || dfb_how=exact
	shift 6
	dfb_into dfb_seek "$@" || return 0
	reply data "$dfb_bytes"
	dfb_found "$dfb_limit"
}

# Whether grep tells binary files, and find tells that a grep was killed.
dfb_gnu=
dfb_is_gnu() {
	# shellcheck disable=SC2185 # no path is needed for this
	[ "$dfb_gnu" != '' ] || dfb_gnu="$(grep --version 2>&1) $(find --version 2>&1)"
	case $dfb_gnu in *'(GNU grep)'*'(GNU findutils)'*) return 0 ;; esac
	return 1
}

dfb_seek() {
	dfb_option=$1 dfb_pattern=$2 dfb_name=$3 dfb_bytes=$4
	shift 4
	if [ "$dfb_how$dfb_first" = quick1 ]; then
		dfb_text=''
		# In the place of a process that cuts: GNU's grep tells when it cannot write, and ends at the limit.
		(ulimit -f $((dfb_window / 512)) && dfb_matches "$@") >&7 2>/dev/null
		dfb_status=$?
		# The end could not be written; above 128, it was beyond the limit.
		[ $dfb_status -eq 0 ] || [ $dfb_status -gt 128 ] || dfb_text='No space left on device'
		return
	fi
	dfb_text=$( { dfb_matches "$@" 2>/dev/null | dfb_cut_window >&7; } 2>&1)
}

dfb_cut_window() {
	if [ "$dfb_first" = 1 ]; then
		head -c "$dfb_window"
	else
		tail -c "+$dfb_first" | head -c "$dfb_window"
	fi
}

# busybox's find runs no `-exec {} +` within brackets: the odd names are those that the first clause leaves.
dfb_matches() {
	set -- "$@" -type f -size "-${dfb_bytes}c" -name "$dfb_name" ! -path '*:*' ! -path "*$dfb_nl*" -exec
	if [ "$dfb_how" = quick ]; then
		set -- "$@" grep -Hn "$dfb_option" -e "$dfb_pattern"
	else
		set -- "$@" sh -c "$dfb_grep" sh exact "$dfb_option" "$dfb_pattern"
	fi
	dfb_text=$(find . "$@" {} + -o -type f -size "-${dfb_bytes}c" -name "$dfb_name" \
		-exec sh -c "$dfb_grep" sh odd "$dfb_option" "$dfb_pattern" {} + 2>&1 >&5)
	dfb_status=$?
	# That of a grep which found nothing is find's too.
	[ "$dfb_how$dfb_status$dfb_text" != quick1 ] || dfb_status=0
	case $dfb_text in
	*': binary file matches'*) printf '?\n=0 \n' ;;
	*) printf '=%s %s\n' "$dfb_status" "${dfb_text##*"$dfb_nl"}" ;;
	esac
} 5>&1
