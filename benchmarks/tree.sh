# shellcheck shell=sh
# tree.sh DIRECTORY: 18,000 files under node_modules and 2,000 under src, of which every tenth holds a needle. With
# nothing but the shell's own commands, for starting 20,000 programs takes long.
set -eu
mkdir -p "$1"
cd "$1"
package=0
while [ "$package" -lt 180 ]; do
	mkdir -p "node_modules/package$package/lib"
	file=0
	while [ "$file" -lt 100 ]; do
		printf 'module.exports = %s;\n// needle %s\n' "$file" "$package" >"node_modules/package$package/lib/file$file.py"
		file=$((file + 1))
	done
	package=$((package + 1))
done
module=0
while [ "$module" -lt 40 ]; do
	mkdir -p "src/module$module"
	file=0
	while [ "$file" -lt 50 ]; do
		{
			printf 'import os\n\n\ndef function_%s(argument):\n' "$file"
			[ $((file % 10)) -ne 0 ] || printf '    # needle %s\n' "$file"
			printf '    return os.fspath(argument)\n'
		} >"src/module$module/file$file.py"
		file=$((file + 1))
	done
	module=$((module + 1))
done
