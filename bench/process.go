package bench

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Usage is the usage of processes: CPU time of all their threads since they started, and resident
// memory now.
type Usage struct {
	CPU      time.Duration
	Resident int64 // bytes
}

// clockTick is the unit of CPU times in /proc: USER_HZ is 100 on all architectures that Go runs on.
const clockTick = 10 * time.Millisecond

// procStat reads /proc/PID/stat from the third field on, the state.
func procStat(pid int) ([]string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	// pid (name) state ppid ...: the name may hold anything, also brackets.
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])), nil
}

// UsageOf reads the usage of one process from /proc (Linux).
func UsageOf(pid int) (u Usage, err error) {
	const utime, stime, rss = 11, 12, 21 // counted from the state
	fields, err := procStat(pid)
	if err == nil && len(fields) <= rss {
		err = fmt.Errorf("/proc/%d/stat is too short", pid)
	}
	number := func(i int) (n int64) {
		if err == nil {
			n, err = strconv.ParseInt(fields[i], 10, 64)
		}
		return n
	}
	u = Usage{CPU: time.Duration(number(utime)+number(stime)) * clockTick,
		Resident: number(rss) * int64(os.Getpagesize())}
	if err != nil {
		return Usage{}, fmt.Errorf("bench: process %d: %w", pid, err)
	}
	return u, nil
}

// gone says whether a process has ended and closed its files. Its first thread may have ended
// before the others; that thread alone remains then, until the parent has waited for it.
func gone(pid int) bool {
	threads, err1 := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	stat, err2 := procStat(pid)
	return err1 != nil || err2 != nil || len(threads) <= 1 && (stat[0] == "Z" || stat[0] == "X")
}

// FindProcess is the process on this machine that listens on a port of addr, 0 if there is none, or
// none that this user may see. Only Linux can be asked.
func FindProcess(addr string) int {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || !local(host) {
		return 0
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return 0
	}
	inodes := listeners(n)
	if len(inodes) == 0 {
		return 0
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		target, err := os.Readlink(link)
		if err == nil && slices.Contains(inodes, target) {
			pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
			return pid
		}
	}
	return 0
}

// local says whether a host is this machine.
func local(host string) bool {
	ip := net.ParseIP(host)
	if ip == nil {
		return host == "localhost"
	}
	if ip.IsLoopback() {
		return true
	}
	addrs, _ := net.InterfaceAddrs()
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(ip)
	})
}

// listeners are the sockets that listen on a port, as the links in /proc name them.
func listeners(port int) (links []string) {
	const listen = "0A"
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		table, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(table)) {
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != listen {
				continue
			}
			_, hex, _ := strings.Cut(f[1], ":")
			if n, err := strconv.ParseUint(hex, 16, 16); err == nil && int(n) == port {
				links = append(links, "socket:["+f[9]+"]")
			}
		}
	}
	return links
}
