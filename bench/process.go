package bench

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Usage is what processes have used: CPU time of all their threads since they started, and resident
// memory now.
type Usage struct {
	CPU      time.Duration
	Resident int64 // bytes
}

// clockTick is the unit of CPU times in /proc: USER_HZ is 100 on all architectures that Go runs on.
const clockTick = 10 * time.Millisecond

// UsageOf asks the kernel (Linux: /proc) for one process.
func UsageOf(pid int) (u Usage, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, fmt.Errorf("bench: process %d: %w", pid, err)
	}
	// pid (name) state ppid ...: the name may hold anything, also brackets.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const utime, stime = 11, 12 // counted from the state
	if len(fields) <= stime {
		return u, fmt.Errorf("bench: process %d: /proc/%d/stat is too short", pid, pid)
	}
	user, err1 := strconv.ParseInt(fields[utime], 10, 64)
	system, err2 := strconv.ParseInt(fields[stime], 10, 64)
	resident, err3 := residentOf(pid)
	if err := errors.Join(err1, err2, err3); err != nil {
		return u, fmt.Errorf("bench: process %d: %w", pid, err)
	}
	return Usage{CPU: time.Duration(user+system) * clockTick, Resident: resident}, nil
}

// gone says whether a process has ended, and let go of its files. Its first thread may have ended
// before the others; what is left then, until the parent has looked, is that thread alone.
func gone(pid int) bool {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	state := strings.TrimSpace(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	return len(threads) <= 1 && (strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X"))
}

func residentOf(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("no VmRSS in its status")
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
