package recipes

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"lockkeeper/locknode"
)

// Info says who a contender is: the metadata that this package writes into a
// lock's node when [MutexOptions].Data is not given.
type Info = locknode.Info

// process is what Info says of this process.
var process = sync.OnceValue(func() Info {
	host, _ := os.Hostname() // unknown is not worth a failure
	return Info{By: locknode.InfoBy, Host: host, PID: os.Getpid(), Program: filepath.Base(os.Args[0]),
		Within: within(os.Getenv(WithinVariable))}
})

// WithinVariable names the environment variable by which a program that holds a
// lock while another program runs tells it so: a comma-separated list, see
// [Info].Within.
const WithinVariable = "LOCKKEEPER_WITHIN"

// maxWithin is how many levels of programs within programs are told of: the
// innermost.
const maxWithin = 32

// within reads the variable. What is not a session is left out.
func within(text string) []string {
	var sessions []string
	for s := range strings.SplitSeq(text, ",") {
		digits, ok := strings.CutPrefix(s, "0x")
		if _, err := strconv.ParseUint(digits, 16, 64); ok && err == nil {
			sessions = append(sessions, s)
		}
	}
	return sessions[max(0, len(sessions)-maxWithin):]
}

// newInfo describes this process as of now.
func newInfo(note string) Info {
	i := process()
	i.Note, i.Since = note, time.Now().UTC().Truncate(time.Millisecond)
	return i
}

// Describe returns the metadata of this process, for recipes that take data of the
// program's own, as an Election does.
func Describe(note string) []byte { return encodeInfo(newInfo(note)) }

func encodeInfo(i Info) []byte {
	data, err := json.Marshal(i)
	if err != nil { // a year beyond 9999, at most
		panic(err)
	}
	return data
}

// downgraded tells from a writer's data that it only reads by now.
func downgraded(data []byte) bool {
	i := locknode.ParseInfo(data)
	return i != nil && i.Downgraded
}
