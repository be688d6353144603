package zkcli

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// emptyLine stands for a line of output with nothing in it.
const emptyLine = "(an empty line)"

// difference begins the reason why lockkeeper prints something else.
const difference = "lockkeeper: "

// A block is some commands that are typed together, with their output.
type block struct {
	line     int // where the file has the first command, from 1
	before   []string
	commands []string
	output   []string

	reason string   // why lockkeeper prints something else; usually empty
	other  []string // its output then
}

// outputOf is target's output.
func (b block) outputOf(target string) []string {
	if target == "lockkeeper" && b.reason != "" {
		return b.other
	}
	return b.output
}

// A transcript is one file of testdata.
type transcript struct {
	blocks []block
	after  []string
}

// parse reads the format that doc.go describes.
func parse(text string) (transcript, error) {
	var t transcript
	var between []string // comments and empty lines
	open := false        // the last block may get more commands
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			between = append(between, line)
			open = false
		case strings.HasPrefix(line, "> "):
			if !open {
				t.blocks = append(t.blocks, block{line: number, before: between})
				between, open = nil, true
			}
			last := &t.blocks[len(t.blocks)-1]
			last.commands = append(last.commands, line[2:])
		case strings.HasPrefix(line, "  "):
			if len(between) > 0 || len(t.blocks) == 0 {
				return t, fmt.Errorf("line %d: output without a command: %s", number, line)
			}
			last := &t.blocks[len(t.blocks)-1]
			if last.reason != "" {
				last.other = append(last.other, line[2:])
			} else {
				last.output = append(last.output, line[2:])
			}
			open = false
		case strings.HasPrefix(line, difference):
			if len(between) > 0 || len(t.blocks) == 0 {
				return t, fmt.Errorf("line %d: a difference without a command: %s", number, line)
			}
			t.blocks[len(t.blocks)-1].reason = strings.TrimPrefix(line, difference)
			open = false
		default:
			return t, fmt.Errorf("line %d: neither command nor output: %s", number, line)
		}
	}
	t.after = between
	return t, nil
}

// String is the file again.
func (t transcript) String() string {
	var b strings.Builder
	for i, bl := range t.blocks {
		before := bl.before
		if i > 0 && len(before) == 0 && len(t.blocks[i-1].output) == 0 && t.blocks[i-1].reason == "" {
			before = []string{""} // or the two would be one block
		}
		for _, line := range before {
			b.WriteString(line + "\n")
		}
		for _, command := range bl.commands {
			b.WriteString("> " + command + "\n")
		}
		for _, line := range bl.output {
			b.WriteString("  " + line + "\n")
		}
		if bl.reason != "" {
			b.WriteString(difference + bl.reason + "\n")
		}
		for _, line := range bl.other {
			b.WriteString("  " + line + "\n")
		}
	}
	for _, line := range t.after {
		b.WriteString(line + "\n")
	}
	return b.String()
}

// fence is the path that marks the end of block i.
func fence(i int) string { return fmt.Sprintf("/fence-%d", i) }

// input is the typed text.
func (t transcript) input(server string) string {
	var b strings.Builder
	for i, bl := range t.blocks {
		for _, command := range bl.commands {
			b.WriteString(strings.ReplaceAll(command, "{server}", server) + "\n")
		}
		b.WriteString("sync " + fence(i) + "\nstat " + fence(i) + "\n")
	}
	// The client has the exit status of its last command but quit.
	b.WriteString("version\nquit\n")
	return b.String()
}

// ready is the last line before the first command's output.
const ready = "JLine support is disabled"

// split finds the output of each of n blocks in the client's output. Each block has its events at
// its end.
func split(printed string, n int) ([][]string, error) {
	lines := strings.Split(strings.TrimRight(printed, "\n"), "\n")
	at := slices.Index(lines, ready)
	if at < 0 {
		return nil, fmt.Errorf("no line %q", ready)
	}
	lines = lines[at+1:]
	var blocks [][]string
	for i := range n {
		end := slices.Index(lines, "Node does not exist: "+fence(i))
		if end < 0 {
			return blocks, fmt.Errorf("no end of block %d", i)
		}
		block, events := takeEvents(lines[:end])
		if len(block) == 0 || block[len(block)-1] != "Sync is OK" {
			return blocks, fmt.Errorf("the sync after block %d failed: %q", i, block)
		}
		blocks = append(blocks, append(block[:len(block)-1:len(block)-1], events...))
		lines = lines[end+1:]
	}
	return blocks, nil
}

// takeEvents takes the events out of the lines of a block. The client prints one as an empty line
// with "WATCHER::", and an empty line with the event; output of other threads may come between the
// two.
func takeEvents(lines []string) (rest, events []string) {
	for _, line := range lines {
		event, isEvent := strings.CutPrefix(line, "WatchedEvent ")
		if (isEvent || line == "WATCHER::") && len(rest) > 0 && rest[len(rest)-1] == "" {
			rest = rest[:len(rest)-1]
		}
		switch {
		case isEvent && !strings.Contains(event, " type:None "):
			events = append(events, shortEvent(event))
		case isEvent || line == "WATCHER::":
		default:
			rest = append(rest, line)
		}
	}
	return rest, events
}

// shortEvent is "event NodeDeleted /a" for "state:SyncConnected type:NodeDeleted path:/a".
func shortEvent(event string) string {
	event = strings.TrimPrefix(event, "state:SyncConnected ")
	event = strings.Replace(event, "type:", "", 1)
	return "event " + strings.Replace(event, "path:", "", 1)
}

func TestParse(t *testing.T) {
	const text = "# a\n> one\n> two\n  2\n> three\n  3\n  \n\n# b\n> four\n\n> five\nlockkeeper: why\n  5\n> six\n# " +
		"end\n"
	got, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, b := range got.blocks {
		blocks = append(blocks, fmt.Sprintf("%d %q %q %q", b.line, b.commands, b.outputOf("zookeeper"),
			b.outputOf("lockkeeper")))
	}
	want := []string{`2 ["one" "two"] ["2"] ["2"]`, `5 ["three"] ["3" ""] ["3" ""]`, `10 ["four"] [] []`,
		`12 ["five"] [] ["5"]`, `15 ["six"] [] []`}
	if !slices.Equal(blocks, want) {
		t.Errorf("got  %v\nwant %v", blocks, want)
	}
	if got.String() != text {
		t.Errorf("again: %q", got.String())
	}
	for _, wrong := range []string{"  out\n", "> a\n\n  out\n", "> a\nout\n", "lockkeeper: why\n"} {
		if _, err := parse(wrong); err == nil {
			t.Errorf("%q: no error", wrong)
		}
	}
}

func TestSplit(t *testing.T) {
	const printed = "Connecting to x\n\nWATCHER::\n\nWatchedEvent state:SyncConnected type:None path:null\nWelcome!\n" +
		ready +
		"\n\n\nWATCHER::\nCreated /a\n\nWatchedEvent state:SyncConnected type:NodeCreated path:/a\nSync is OK\n" +
		"Node does not exist: /fence-0\nSync is OK\nNode does not exist: /fence-1\n"
	got, err := split(printed, 2)
	if want := [][]string{{"", "Created /a", "event NodeCreated /a"}, {}}; err != nil ||
		!slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %q, %v\nwant %q", got, err, want)
	}
	for _, wrong := range []string{
		"", ready + "\nSync is OK\n", ready + "\nNode does not exist: /fence-0\n",
		ready + "\nSync has failed.\nNode does not exist: /fence-0\n",
	} {
		if _, err := split(wrong, 1); err == nil {
			t.Errorf("%q: no error", wrong)
		}
	}
}
