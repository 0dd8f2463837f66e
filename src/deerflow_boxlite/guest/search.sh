# shellcheck shell=sh
# Walking and searching a tree in a box, for files.py and search.py; goes with files.sh.
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

# dfb_walk ROOT OUT LIMIT DIRECTORIES NAME TEST...: list a tree into OUT and answer with its first LIMIT bytes, the exit
# status of find, and its last message.
#
# TEST is what find is to see first: -maxdepth, and what to prune. Directories named DIRECTORIES are printed twice, other
# files named NAME once: "./a/b" and a NUL. Then come links named NAME: "d./a" (to a directory) or "l./a", and a NUL, and
# at the very end "/" and a NUL: without these, there is more than was sent.
dfb_walk() {
	dfb_enter "$1" || return 0
	dfb_out=$2 dfb_limit=$3 dfb_directories=$4 dfb_name=$5
	shift 5
	dfb_text=$(find . "$@" -type d -name "$dfb_directories" -print0 -print0 -o \
		! -type d ! -type l -name "$dfb_name" -print0 -o \
		-type l -name "$dfb_name" -exec sh -c "$dfb_links" sh {} + 2>&1 >"$dfb_out" 5>"$dfb_out.links")
	dfb_status=$?
	cd / || return
	if [ -s "$dfb_out.links" ]; then
		cat "$dfb_out.links" >>"$dfb_out"
		: >"$dfb_out.links"
	fi
	printf '/\0' >>"$dfb_out"
	reply data "$dfb_status"
	head -c "$dfb_limit" "$dfb_out"
	part
	printf '%s' "${dfb_text##*"$dfb_nl"}"
	part
}

# Run by find for many files at once. A grep that nobody reads any more ends the walk; one that was killed is told of.
# shellcheck disable=SC2016 # for another shell
dfb_grep='option=$1 pattern=$2
shift 2
grep -Hna "$option" -e "$pattern" "$@"
status=$?
case $status in
141) kill "$PPID" ;;
0 | 1 | 2) ;;
*) echo "grep ended with exit code $status" >&2 ;;
esac'

# The same for files whose names cannot be told from what grep prints after them: each name comes first, every line of
# it after a "/", then "=".
# shellcheck disable=SC2016 # for another shell
dfb_grep_odd='option=$1 pattern=$2 nl=$3
shift 3
for file; do
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
	[ $? != 141 ] || kill "$PPID"
done'

# dfb_search ROOT OUT LIMIT FIRST WINDOW OPTION PATTERN NAME SIZE TEST...: the lines that a pattern matches in files named
# NAME and smaller than SIZE bytes. Of the whole, WINDOW bytes from byte FIRST (1 or more) are put into OUT, and the first
# LIMIT of these are the answer, and a message if that failed. Lines are "./path:number:line" or, after an odd name, "number:line"; the last one is
# "=", the exit status of find, a space and its last message.
dfb_search() {
	dfb_enter "$1" || return 0
	dfb_out=$2 dfb_limit=$3 dfb_first=$4 dfb_window=$5 dfb_option=$6 dfb_pattern=$7 dfb_name=$8 dfb_bytes=$9
	shift 9
	dfb_text=$( { dfb_matches "$@" 2>/dev/null | dfb_cut_window >"$dfb_out"; } 2>&1)
	cd / || return
	reply data
	head -c "$dfb_limit" "$dfb_out"
	part
	printf '%s' "$dfb_text"
	part
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
	dfb_text=$(find . "$@" \
		-type f -size "-${dfb_bytes}c" -name "$dfb_name" ! -path '*:*' ! -path "*$dfb_nl*" \
		-exec sh -c "$dfb_grep" sh "$dfb_option" "$dfb_pattern" {} + -o \
		-type f -size "-${dfb_bytes}c" -name "$dfb_name" \
		-exec sh -c "$dfb_grep_odd" sh "$dfb_option" "$dfb_pattern" "$dfb_nl" {} + 2>&1 >&5)
	printf '=%s %s\n' $? "${dfb_text##*"$dfb_nl"}"
} 5>&1

# dfb_binaries ROOT NAME...: which of these files are not text, by DeerFlow's rule: a NUL in the first 8 KiB. They are
# answered by their numbers, the first being 0.
dfb_binaries() {
	dfb_enter "$1" || return 0
	shift
	dfb_text=''
	if [ "$(head -q -c 8192 "$@" | tr -cd '\000' | head -c 1 | tr '\000' 0)" = 0 ]; then
		dfb_number=0
		for dfb_path; do
			case $(head -c 8192 "$dfb_path" | tr '\000\060' '\060x') in
			*0*) dfb_text="$dfb_text $dfb_number" ;;
			esac
			dfb_number=$((dfb_number + 1))
		done
	fi
	cd / || return
	reply "binary$dfb_text"
}
