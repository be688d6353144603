package recipes

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Info says who a contender is: the metadata that this package writes into a
// lock's node when [MutexOptions].Data is not given. It is a small JSON object,
// for people, for the command lockkeeper locks, and for programs in any language:
//
//	{"by":"lockkeeper/recipes","host":"web-3","pid":4711,"program":"nightly",
//	 "note":"monthly report","since":"2026-11-21T14:00:00.25Z"}
type Info struct {
	// By tells these data from others'.
	By string `json:"by"`

	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Program string `json:"program,omitempty"`

	// Note is [MutexOptions].Note: why the lock is wanted.
	Note string `json:"note,omitempty"`

	// Within are the sessions that hold locks for as long as this process runs,
	// outermost first: those of the commands lockkeeper lock and lockkeeper elect that
	// have started it, as ZooKeeper's tools write them (0x1234). Together with them
	// the contender is one owner: what it waits for, they wait for. They come from
	// the environment, see [WithinVariable].
	Within []string `json:"within,omitempty"`

	// Since is when the contender asked for the lock, by its own clock.
	Since time.Time `json:"since"`

	// Downgraded: the node is a writer's, and its owner is content with reading
	// by now; see [Grant.Downgrade].
	Downgraded bool `json:"downgraded,omitempty"`

	// Data is what the program had put into the node itself, before it was
	// downgraded.
	Data []byte `json:"data,omitempty"`

	// ID tells the contenders of a [SimpleMutex] apart, whose nodes have no
	// names of their own.
	ID string `json:"id,omitempty"`
}

const infoBy = "lockkeeper/recipes"

// process is what Info says of this process.
var process = sync.OnceValue(func() Info {
	host, _ := os.Hostname() // unknown is not worth a failure
	return Info{By: infoBy, Host: host, PID: os.Getpid(), Program: filepath.Base(os.Args[0]),
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
func Describe(note string) []byte { return newInfo(note).encode() }

func (i Info) encode() []byte {
	data, err := json.Marshal(i)
	if err != nil { // a year beyond 9999, at most
		panic(err)
	}
	return data
}

// parseInfo returns nil if data are not such metadata.
func parseInfo(data []byte) *Info {
	if len(data) == 0 || data[0] != '{' {
		return nil
	}
	var i Info
	if json.Unmarshal(data, &i) != nil || i.By != infoBy {
		return nil
	}
	return &i
}

// downgraded tells from a writer's data that it only reads by now.
func downgraded(data []byte) bool {
	i := parseInfo(data)
	return i != nil && i.Downgraded
}
