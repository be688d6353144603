package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// patches are the lines of package runtime (of Go 1.26) that are replaced. bubbleRand has the
// replacements.
var patches = []struct{ file, old, new string }{
	{"select.go", "j := cheaprandn(uint32(norder + 1))", "j := bubbleRandn(uint32(norder + 1))"},
	{"time.go", "t.rand = cheaprand()", "t.rand = bubbleTimerRand()"},
	{"sema.go", "s.ticket = cheaprand() | 1", "s.ticket = bubbleRandn(0xffffffff) | 1"},
	{"rand.go", "\tmp := getg().m\n\tc := &mp.chacha8\n",
		"\tif getg().bubble != nil && bubbleSeed != 0 {\n\t\treturn bubbleNext()\n\t}\n" +
			"\tmp := getg().m\n\tc := &mp.chacha8\n"},
	// Random choices before there is a bubble: the keys of hash functions, and the address of the
	// heap, on which the order of a map with pointers as keys depends.
	{"rand.go", "globalRand.state.Init(*seed)", "globalRand.state.Init([32]byte{1})"},
	// Other users of the heap at moments that real time or chance decides, which move all later
	// allocations: threads, caches of interface types, and when a garbage collection begins.
	{"proc.go", "\tnmp := mget()\n", "\tnmp := bubbleMget()\n"},
	{"iface.go", oneInThousand + "return tab\n", "if true {\n\t\treturn tab\n"},
	{"iface.go", oneInThousand + "// This ensures", "if true {\n\t\t// This ensures"},
	{"mgcpacer.go", "runway := c.runway.Load()", "runway := uint64(0)"},
	// Real time in the scheduler: how long a goroutine has run, or been in a system call, and how
	// often goroutines of the runtime itself have run.
	{"proc.go", "const forcePreemptNS = 10 * 1000 * 1000 // 10ms", "const forcePreemptNS = 1 << 60"},
	{"proc.go", "if retake(now) != 0 {", "if false {"},
	{"proc.go", "if pp.schedtick%61 == 0 && ", "if bubbleSeed == 0 && pp.schedtick%61 == 0 && "},
}

// oneInThousand is how the two caches of interface types decide whether they grow.
const oneInThousand = "if cheaprand()&1023 != 0 {\n\t\t// Only bother updating the cache ~1 in 1000 times.\n\t\t"

// bubbleRand is appended to the runtime's rand.go. jepsen/simtest sets bubbleSeed.
const bubbleRand = `
//go:linkname bubbleSeed
var bubbleSeed uint64

//go:nosplit
func bubbleNext() uint64 {
	bubbleSeed += 0x9e3779b97f4a7c15
	z := bubbleSeed
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

//go:nosplit
func bubbleRandn(n uint32) uint32 {
	if getg().bubble == nil || bubbleSeed == 0 {
		return cheaprandn(n)
	}
	return uint32(uint64(uint32(bubbleNext())) * uint64(n) >> 32)
}

func bubbleTimerRand() uint32 {
	if bubbleSeed == 0 {
		return cheaprand()
	}
	return uint32(bubbleNext())
}

// bubbleMget gives a thread that hands its P over up to 10 ms to become idle. A new thread, which
// the scheduler would start otherwise, takes memory of the heap, so all that follows would be
// elsewhere.
//
//go:nowritebarrierrec
func bubbleMget() *m {
	mp := mget()
	for i := 0; mp == nil && i < 50; i++ {
		unlock(&sched.lock)
		usleep(200)
		lock(&sched.lock)
		mp = mget()
	}
	return mp
}
`

// runtimeFiles writes the changed files of package runtime into dir. It returns the replacement of
// each file, for an overlay. An error says that it does not know the runtime of this Go.
func runtimeFiles(goroot, dir string) (map[string]string, error) {
	changed := make(map[string]string) // text by name
	for _, p := range patches {
		name := filepath.Join(goroot, "src", "runtime", p.file)
		text, ok := changed[name]
		if !ok {
			b, err := os.ReadFile(name)
			if err != nil {
				return nil, fmt.Errorf("sim: overlay: %w", err)
			}
			text = string(b)
		}
		if strings.Count(text, p.old) != 1 {
			return nil, fmt.Errorf("sim: overlay: %s does not have the line %q", name, p.old)
		}
		changed[name] = strings.Replace(text, p.old, p.new, 1)
	}
	replace := make(map[string]string)
	for name, text := range changed {
		if filepath.Base(name) == "rand.go" {
			text += bubbleRand
		}
		copied := filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(copied, []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("sim: overlay: %w", err)
		}
		replace[name] = copied
	}
	return replace, nil
}
