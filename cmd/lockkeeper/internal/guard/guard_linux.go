package guard

import (
	"bytes"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// becomeReaper has the kernel make this process the parent of those of its descendants that lose
// theirs. It reports whether that worked: Linux has it since 3.4.
func becomeReaper() bool { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil }

// nameProcess gives this process another name than that of its file. That is for people and
// killall(1): an error does not matter.
func nameProcess(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }

// dieWithParent has the kernel kill the command when its parent is killed.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// Descendants are the processes that a process has started, and those that these have, as far as
// /proc shows them. Zombies are not among them.
func Descendants(root int) (found []Process) {
	children := make(map[int][]Process)
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1) // what can be read
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if p, parent, ok := parseStat(pid, stat); ok && err == nil {
			children[parent] = append(children[parent], p)
		}
	}
	for next := []int{root}; len(next) > 0; next = next[1:] {
		for _, p := range children[next[0]] {
			next = append(next, p.PID)
			if p.Name != "" {
				found = append(found, p)
			}
		}
	}
	return found
}

// parseStat reads /proc/PID/stat, which begins
//
//	pid (name) state parent group
//
// The name may have spaces and brackets in it. That of a zombie is "".
func parseStat(pid int, stat []byte) (p Process, parent int, ok bool) {
	begin, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if begin < 0 || end < begin {
		return p, 0, false
	}
	fields := bytes.Fields(stat[end+1:])
	if len(fields) < 3 {
		return p, 0, false
	}
	p = Process{PID: pid, Name: string(stat[begin+1 : end])}
	if fields[0][0] == 'Z' || fields[0][0] == 'X' {
		p.Name = ""
	}
	parent, err := strconv.Atoi(string(fields[1]))
	group, gerr := strconv.Atoi(string(fields[2]))
	p.Group = group
	return p, parent, err == nil && gerr == nil
}
