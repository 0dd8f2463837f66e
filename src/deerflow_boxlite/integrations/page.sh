# shellcheck shell=sh
# page.sh FILE FIRST COUNT BYTES COUNTABLE: a line `SIZE LINES`, then COUNT lines from line FIRST on, cut after BYTES.
#
# LINES is how many lines the file has, or -1 for one larger than COUNTABLE, which is not read to its end only to count.
# With a COUNT of 0 there is nothing but the first line, and LINES is -1.
[ -e "$1" ] || fail_missing "$1" file_not_found
[ -f "$1" ] || fail not_a_file
[ -r "$1" ] || fail permission_denied
size=$(stat -L -c %s -- "$1") || exit
lines=-1
if [ "$size" -eq 0 ]; then
	lines=0
elif [ "$3" -gt 0 ] && [ "$size" -le "$5" ]; then
	# A last line with no newline is a line too.
	lines=$(($(wc -l <"$1") + 1 - $(tail -c 1 -- "$1" | wc -l)))
fi
printf '%s %s\n' "$size" "$lines"
if [ "$3" -gt 0 ] && [ "$2" -le 1 ]; then
	head -n "$3" -- "$1"
elif [ "$3" -gt 0 ]; then
	tail -n "+$2" -- "$1" | head -n "$3"
fi | if [ "$size" -gt "$4" ]; then
	head -c "$4"
else
	cat
fi
