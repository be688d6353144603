# Runs systemd as process 1 of namespaces of its own, with the unit in the file UNIT as
# report.service, and writes to the file OUT what becomes of it. LOCKKEEPER is the binary, ROOT an
# empty directory. See TestLocksUnit.
set -e
ip link set lo up
mount --make-rprivate /
mount -t tmpfs tmpfs "$ROOT"
cd "$ROOT"
mkdir -p usr etc/systemd/system proc sys dev run tmp var/log root out
for dir in bin lib lib64 sbin; do [ ! -e /usr/$dir ] || ln -s usr/$dir $dir; done
mount --rbind /usr usr
mount -t tmpfs tmpfs usr/local/bin
cp "$LOCKKEEPER" usr/local/bin/lockkeeper
mount --bind "$OUT" out
cp -a /etc/passwd /etc/group /etc/ld.so* etc/
echo uninitialized >etc/machine-id
cp "$UNIT" etc/systemd/system/report.service

cat >usr/local/bin/report <<'END'
#!/bin/sh
echo "token $LOCKKEEPER_TOKEN resumed $LOCKKEEPER_RESUMED" >>/out/report
exec sleep 1000
END
chmod +x usr/local/bin/report

cat >etc/systemd/system/server.service <<'END'
[Service]
ExecStart=/usr/local/bin/lockkeeper serve
WorkingDirectory=/tmp
END

cat >etc/systemd/system/play.service <<'END'
[Unit]
DefaultDependencies=no
[Service]
ExecStart=/bin/sh /play
ExecStopPost=/bin/systemctl exit
StandardOutput=file:/out/log
StandardError=inherit
END

cat >play <<'END'
lines() { for i in $(seq 300); do [ "$(wc -l </out/report)" -ge "$1" ] && return; sleep 0.1; done; }
: >/out/report
systemctl start server report
lines 1
kill -9 $(systemctl show -p MainPID --value report)
lines 2
echo "restarts $(systemctl show -p NRestarts --value report)" >>/out/report
systemctl stop report
echo "stopped $(systemctl show -p ActiveState --value report)" >>/out/report
[ -e /run/report ] || echo "no directory" >>/out/report
lockkeeper locks >>/out/report
END

mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup sys/fs/cgroup
mount -t tmpfs tmpfs dev
for file in null zero random urandom full tty; do
	touch dev/$file
	mount --bind /dev/$file dev/$file
done
mount -t tmpfs -o mode=755 tmpfs run
exec env -i container=lxc PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
	chroot "$ROOT" /lib/systemd/systemd --system --unit=play.service --log-target=null
