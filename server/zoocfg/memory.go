package zoocfg

import (
	"bytes"
	"cmp"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"lockkeeper/session/admission"
)

// The limits whose defaults are shares of maxMemory. Together, and with what has a bound of its
// own, they are less than that (TestBoundsAddUp, docs/security.md).
const (
	// maxMemoryByDefault is the largest default of maxMemory, minMaxMemory its smallest value.
	maxMemoryByDefault, minMaxMemory = 4 << 30, 256 << 20

	stateShare      = 5  // maxDataBytes
	connShare       = 8  // maxCnxns
	watchShare      = 16 // maxWatchMemory
	outputShare     = 16 // maxClientMemory
	responseShare   = 64 // maxResponseBytes
	indexShare      = 24 // console.indexBytes
	bytesPerSession = 32 << 10
	// minResponseByDefault has room for the largest node that a request can make.
	minResponseByDefault = 2 * MaxMaxBuffer
	// ConnBytes is what a connection takes that is not counted in bytes: buffers, small frames and
	// the stack of its goroutine.
	ConnBytes = 32 << 10
	// sessionsPerConn is how many sessions of an address there may be for each connection that it
	// may have: those that it has left behind live until they expire.
	sessionsPerConn = 20
	// maxSilentByDefault is the largest default of maxSessionlessCnxns.
	maxSilentByDefault = 2000
)

// settleMemory replaces the limits that are 0 by their share of maxMemory.
func (c *Config) settleMemory() {
	if c.MaxMemory == 0 {
		c.MaxMemory = defaultMemory()
	}
	l, all := &c.Limits, int64(c.MaxMemory)
	share := func(part int64) int { return int(min(all/part, math.MaxInt32)) }
	l.Response = cmp.Or(l.Response, min(admission.DefaultResponse, max(minResponseByDefault, share(responseShare))))
	l.Memory = cmp.Or(l.Memory, max(2*l.Response, share(outputShare)))
	l.WatchBytes = cmp.Or(l.WatchBytes, share(watchShare))
	c.Console.IndexBytes = cmp.Or(c.Console.IndexBytes, share(indexShare))
	l.Nodes = cmp.Or(l.Nodes, Unlimited)
	l.DataBytes = cmp.Or(l.DataBytes, int(all/stateShare))
	l.Sessions = cmp.Or(l.Sessions, share(bytesPerSession))
	if l.SessionsPerAddr == 0 {
		l.SessionsPerAddr = max(Unlimited, sessionsPerConn*c.Client.MaxCnxnsPerAddr)
	}
	c.Client.MaxCnxns = cmp.Or(c.Client.MaxCnxns, c.DefaultCnxns())
	c.Client.MaxSilentCnxns = cmp.Or(c.Client.MaxSilentCnxns, maxSilentByDefault)
}

// DefaultCnxns is MaxCnxns as it is when no file says more.
func (c *Config) DefaultCnxns() int {
	return int(min(int64(c.MaxMemory)/(connShare*ConnBytes), math.MaxInt32))
}

// defaultMemory is the default of maxMemory: half of the machine's memory, or all that the process
// may have by GOMEMLIMIT or its control group, and 4 GiB at the most.
func defaultMemory() int {
	most := int64(maxMemoryByDefault)
	if limit := debug.SetMemoryLimit(-1); limit > 0 { // GOMEMLIMIT; without it MaxInt64
		most = min(most, limit)
	}
	for _, file := range controlGroupFiles() {
		if limit, ok := readNumber(file, ""); ok {
			most = min(most, limit)
		}
	}
	if total, ok := readNumber("/proc/meminfo", "MemTotal:"); ok {
		most = min(most, total<<10/2)
	}
	return int(max(most, minMaxMemory))
}

// controlGroupFiles returns where the memory limit of this process's control group may be: in a
// container at the root, for a systemd unit further down, or as version 1 has it.
func controlGroupFiles() []string {
	const root = "/sys/fs/cgroup"
	files := []string{root + "/memory.max", root + "/memory/memory.limit_in_bytes"}
	text, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(text)) {
		if own, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			files = append(files, filepath.Join(root, own, "memory.max"))
		} else if _, own, ok := strings.Cut(strings.TrimSpace(line), ":memory:"); ok {
			files = append(files, filepath.Join(root, "memory", own, "memory.limit_in_bytes"))
		}
	}
	return files
}

// readNumber reads the number in the first line of a file that begins with prefix.
func readNumber(file, prefix string) (int64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(text) {
		if rest, ok := strings.CutPrefix(string(line), prefix); ok {
			fields := strings.Fields(rest)
			if len(fields) == 0 {
				return 0, false
			}
			n, err := strconv.ParseInt(fields[0], 10, 64)
			return n, err == nil && n > 0
		}
	}
	return 0, false
}
