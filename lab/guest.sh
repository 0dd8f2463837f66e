#!/lab/bin/busybox sh
# Runs the command in the emulated host, as its first process, and reports to lab/run over two virtio-serial ports:
# "pulse" gets a byte every second for as long as this host lives; "output" gets the command's output and, last, the
# end mark (/lab/call/mark) and the exit status.

export PATH=/lab/bin
/lab/bin/busybox --install -s /lab/bin

fail() {
	echo "lab: $*" >/dev/console
	poweroff -f
}

port() {
	for name in /sys/class/virtio-ports/*/name; do
		if [ "$(cat "$name")" = "$1" ]; then
			basename "$(dirname "$name")"
			return
		fi
	done
	fail "no port $1"
}

# Neither of these may be what the kernel kills when the command takes all memory. The command gets the default.
echo -1000 >/proc/self/oom_score_adj
{
	while echo; do
		sleep 1
	done
} >"/dev/$(port pulse)" &

# A port can be open only once, and a command may open /dev/stderr again: so it gets a pipe, which something pumps.
# A pipe also keeps the order: the end mark, written to it after the command's exit, comes after all its output.
mkfifo /lab/output
cat /lab/output >"/dev/$(port output)" &
exec 3<>/lab/output
echo 0 >/proc/self/oom_score_adj

sh /lab/call/command </dev/null >&3 2>&1 3>&- &
wait $!
status=$?

cat /lab/call/mark >&3
echo "$status" >&3
# lab/run ends this host when it has read the mark: there is nothing to shut down in order.
while :; do
	sleep 60
done
