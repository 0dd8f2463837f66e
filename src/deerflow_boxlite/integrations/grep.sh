# shellcheck shell=sh
# grep.sh BYTES ROOT TEXT NAME EXCLUDED...: lines that hold TEXT, in the text files at or below ROOT whose last part
# matches the pattern NAME, but in no directory named EXCLUDED, cut after BYTES. Links are not followed.
#
# A line comes as `FILE NUL NUMBER:LINE`, or as `NUMBER:LINE` when it is of the same file as the one before. FILE begins
# with `/` or `./`. What the tools have to say goes to standard error.
bytes=$1 text=$3 name=$4
if [ -f "$2" ]; then
	[ -r "$2" ] || fail permission_denied
	root=$2
else
	enter "$2"
	root=.
fi
shift 4
for excluded; do
	set -- "$@" -type d -name "$excluded" -prune -o
	shift
done
if [ "$root" = . ] && at_top; then
	set -- "$@" '(' -path ./proc -o -path ./sys -o -path ./dev ')' -prune -o
fi

# Only GNU grep ends a file's name by a NUL, and leaves out files that are no text.
if [ "$(echo | grep -cIZ '' 2>/dev/null)" = 1 ]; then
	find "$root" "$@" -type f -name "$name" -exec grep -nHIFZ -e "$text" -- '{}' + | head -c "$bytes"
	exit 0
fi

newline='
'
# od shows a NUL as \0. So much of a file tells whether it is text.
# shellcheck disable=SC2016
is_text='case $(od -An -c -N 8192 -- "$1") in *"\0"*) exit 1 ;; esac'
{
	find "$root" "$@" -type f -name "$name" ! -path "*$newline*" -exec grep -lF -e "$text" -- '{}' + |
		while IFS= read -r file; do
			if sh -c "$is_text" sh "$file"; then
				printf '%s\0' "$file"
				grep -nF -e "$text" -- "$file"
			fi
		done
	# A name with a newline in it cannot come by line. There are few.
	find "$root" "$@" -type f -name "$name" -path "*$newline*" -exec grep -qF -e "$text" -- '{}' ';' \
		-exec sh -c "$is_text" sh '{}' ';' -exec printf '%s\0' '{}' ';' -exec grep -nF -e "$text" -- '{}' ';'
} | head -c "$bytes"
exit 0
