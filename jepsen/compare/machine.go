package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"lockkeeper/bench"
)

// machine is how fast the disk under the data was, so that tables of different days can be
// compared.
type machine struct {
	// FdatasyncUs and FdatasyncP99Us are the median and the 99th percentile of writing a small
	// block into a file that has its length already, and having it on disk.
	FdatasyncUs    float64 `json:"fdatasyncUs"`
	FdatasyncP99Us float64 `json:"fdatasyncP99Us"`
}

const (
	// syncBlock is how much is written each time, and syncFile how long the file is.
	syncBlock, syncFile = 512, 4 << 20
)

// measureMachine writes small blocks one after the other into a file in dir that has its length
// already, each followed by fdatasync, for a duration.
func measureMachine(dir string, duration time.Duration) (m *machine, err error) {
	f, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	if _, err := f.Write(make([]byte, syncFile)); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	var h bench.Histogram
	block := []byte(strings.Repeat("x", syncBlock))
	began := time.Now()
	for i := 0; time.Since(began) < duration; i++ {
		start := time.Now()
		if _, err := f.WriteAt(block, int64(i*syncBlock%syncFile)); err != nil {
			return nil, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return nil, fmt.Errorf("fdatasync: %w", err)
		}
		h.Add(time.Since(start))
	}
	us := func(q float64) float64 { return float64(h.Quantile(q)) / float64(time.Microsecond) }
	return &machine{FdatasyncUs: us(0.5), FdatasyncP99Us: us(0.99)}, nil
}

// describe describes this machine, and the disk of the data.
func describe(dir string) []string {
	var lines []string
	add := func(what, value string) {
		if value != "" {
			lines = append(lines, what+": "+value)
		}
	}
	add("CPU", fmt.Sprintf("%s, %d cores", fieldOf("/proc/cpuinfo", "model name"), runtime.NumCPU()))
	add("memory", fieldOf("/proc/meminfo", "MemTotal"))
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		add("kernel", strings.TrimSpace(string(b)))
	}
	add("data on", mountOf(dir))
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		add("load average before", strings.Join(strings.Fields(string(b))[:3], " "))
	}
	return lines
}

// fieldOf finds the first line of a file that begins with a name and a colon, or a name and blanks.
func fieldOf(file, name string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// mountOf is the file system that holds a directory: its type, device and options.
func mountOf(dir string) string {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return ""
	}
	defer f.Close()
	best, text := "", ""
	for s := bufio.NewScanner(f); s.Scan(); {
		w := strings.Fields(s.Text()) // device, place, type, options
		inside := len(w) > 3 && (w[1] == "/" || dir == w[1] || strings.HasPrefix(dir, w[1]+"/"))
		if inside && len(w[1]) >= len(best) {
			best, text = w[1], fmt.Sprintf("%s on %s (%s)", w[2], w[0], w[3])
		}
	}
	return text
}

// output is the first line that a command prints, or its error.
func output(name string, args ...string) string {
	out, err := exec.Command(name, args...).CombinedOutput()
	lines := slices.Collect(strings.Lines(string(out)))
	if err != nil || len(lines) == 0 {
		return "unknown"
	}
	return strings.TrimSpace(lines[0])
}
