# shellcheck shell=sh
# delete.sh PATH: remove it and all below it. A link goes, what it points to stays.
[ -e "$1" ] || [ -L "$1" ] || fail_missing "$1" path_not_found
rm -rf -- "$1" || exit 1
exit 0
