package splitbrain

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"lockkeeper/quorum"
)

// columns are those of the table, with their widths in runes.
var columns = []struct {
	name  string
	width int
}{
	{"case", 42}, {"side", 20}, {"majority", 8}, {"predicted", 9}, {"leader", 12}, {"writes", 13}, {"lock", 7}, {"serves", 11}, {"clients", 15}, {"", 9},
}

// Heading writes what stands above the cases of one cluster.
func Heading(w io.Writer, cluster Group) {
	maj := quorum.NewMaj(cluster.Voters)
	text := fmt.Sprintf("%s: a side may go on if set.size > %d/2, that is with %d; %d may fail", plural(cluster.Voters, "voter"), cluster.Voters, maj.Size(), maj.Tolerates())
	if cluster.Observers > 0 {
		text += fmt.Sprintf("; and %s, which do not count", plural(cluster.Observers, "observer"))
	}
	var cells []string
	for _, c := range columns {
		cells = append(cells, c.name)
	}
	fmt.Fprintf(w, "\n%s\n\n%s", text, line(cells))
}

// Row writes a case, a line for each side, and below it what did not come as predicted.
func (r *Result) Row(w io.Writer) {
	verdict := "as predicted"
	if !r.OK() {
		verdict = "NOT AS PREDICTED"
	}
	for i := range r.Sides {
		cells := append([]string{""}, r.cells(i)...)
		if i == 0 {
			cells[0] = r.Name
		}
		if i == len(r.Sides)-1 {
			cells = append(cells, verdict)
		}
		fmt.Fprint(w, line(cells))
	}
	for _, c := range r.Checks {
		if !c.OK {
			fmt.Fprintf(w, "    ✗ %s: %s\n", c.What, c.Got)
		}
	}
	if r.Window > 0 {
		fmt.Fprintf(w, "    ! for %s two clients held one lock, and both were told that they are connected\n", seconds(r.Window))
	}
}

// cells are what the table says of a side.
func (r *Result) cells(side int) []string {
	seen := r.Sides[side]
	leader, writes, lock := "none", "none", "none"
	if leaders := slices.Sorted(maps.Keys(seen.Leading)); len(leaders) == 1 {
		if leader = fmt.Sprintf("m%d", leaders[0]); leaders[0] != r.LeaderBefore {
			leader += ", " + seen.Leading[leaders[0]].String()
		}
	} else if len(leaders) > 1 {
		leader = sideName(leaders)
	}
	if seen.Writes > 0 {
		writes = fmt.Sprintf("%d, %s", seen.Writes, seen.Wrote)
	}
	if seen.Lock.Came() {
		lock = seen.Lock.String()
	}
	cells := []string{sideName(seen.Members), r.Case.Arithmetic(side)}
	if r.Case.Quorum(side) {
		margin := ""
		if r.Margin != 0 {
			margin = fmt.Sprintf("%+.1f s", r.Margin.Seconds())
		}
		return append(cells, "goes on", leader, writes, lock, "yes", margin)
	}
	stopped, told := r.stopped(side)
	return append(cells, "stops", leader, writes, lock, "until "+stopped.String(), "told at "+told.String())
}

// line pads cells to their columns.
func line(cells []string) string {
	var b strings.Builder
	for i, cell := range cells {
		b.WriteString(cell)
		if i < len(cells)-1 {
			b.WriteString(strings.Repeat(" ", max(1, columns[i].width-utf8.RuneCountInString(cell)+1)))
		}
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}

// Legend says what the columns of the table are.
const Legend = `
Times are since the break. leader: who leads, and since when if it was elected after it. writes: acknowledged, and when the
first one was. lock: when the lock was granted that both sides want. serves: until when the last member served clients.
clients: when the last client of a member knew that it is not connected; on the side that goes on, by how much the clients
left behind knew it before their locks were given away (negative: two held one lock).
`
