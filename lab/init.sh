#!/bin/busybox sh
# First process of the emulated host: makes a root of the real machine's files and hands over to guest.sh in it.
# Speaks to nobody but the kernel's console; whatever fails here powers the host off, and lab/run shows the console.

fail() {
	echo "lab: $*" >/dev/console
	poweroff -f
}

/bin/busybox --install -s /bin
export PATH=/bin

mount -t devtmpfs devtmpfs /dev || fail 'no /dev'
mount -t proc proc /proc || fail 'no /proc'
mount -t sysfs sysfs /sys || fail 'no /sys'

while read -r module parameters; do
	# shellcheck disable=SC2086 # each parameter is a word of its own
	insmod "$module" $parameters || fail "cannot load $module"
done </modules/order

# The real machine's root, read-only, under a layer on the scratch disk that takes all writes. Not a tmpfs: box
# disks under $HOME would compete with the boxes for memory.
mount -t ext4 -o noatime,noinit_itable,discard /dev/vda /scratch || fail 'no scratch disk'
mkdir -p /scratch/upper /scratch/work /scratch/tmp
chmod 1777 /scratch/tmp
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=524288,cache=loose root /lower || fail "no files of the machine"
mount -t overlay -o lowerdir=/lower,upperdir=/scratch/upper,workdir=/scratch/work overlay /root || fail 'no root'

mount -t devtmpfs devtmpfs /root/dev
mkdir -p /root/dev/pts /root/dev/shm /root/run /root/lab /root/proc /root/sys
mount -t devpts -o mode=0620,ptmxmode=0666 devpts /root/dev/pts
mount -t tmpfs -o mode=1777 tmpfs /root/dev/shm
mount -t tmpfs -o mode=0755 tmpfs /root/run
mount -t proc proc /root/proc
mount -t sysfs sysfs /root/sys
mount -t cgroup2 cgroup2 /root/sys/fs/cgroup
# As systemd does on a real host: BoxLite limits its processes by these.
echo '+cpu +memory +pids +io' >/root/sys/fs/cgroup/cgroup.subtree_control
chmod 0666 /dev/kvm /dev/fuse /dev/net/tun

# BoxLite keeps short names for its sockets there. The real machine's are nothing to the boxes of this one.
if [ -d /root/tmp/bl-0 ]; then
	mount -t tmpfs -o mode=0700 tmpfs /root/tmp/bl-0
fi

mount -t tmpfs -o mode=0755 tmpfs /root/lab || fail 'no /lab'
mkdir /root/lab/bin /root/lab/call /root/lab/out /root/lab/tmp
cp /bin/busybox /guest.sh /root/lab/bin/
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=524288 call /root/lab/call || fail 'no command to run'
mount --bind /scratch/tmp /root/lab/tmp
# Without caching, what the command writes is on the real machine when the write returns.
mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288 out /root/lab/out || fail 'no LAB_OUT'

ip link set lo up
hostname lab

umount /proc /sys
exec switch_root /root /lab/bin/busybox sh /lab/bin/guest.sh
