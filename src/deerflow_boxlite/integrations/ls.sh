# shellcheck shell=sh
# ls.sh DIRECTORY: its entries, each as `d` or `f` and the name, ended by a NUL. Links are not followed: they are `f`.
enter "$1"
for name in * .[!.]* ..?*; do
	if [ -L "./$name" ]; then
		printf 'f%s\0' "$name"
	elif [ -d "./$name" ]; then
		printf 'd%s\0' "$name"
	elif [ -e "./$name" ]; then
		printf 'f%s\0' "$name"
	fi
done
exit 0
