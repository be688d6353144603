package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// spread is the distribution of one figure of one system over several rounds.
type spread struct {
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Values []float64 `json:"values"`
	// Failures is how often it was not measured, and Failed why, the last time.
	Failures int    `json:"failures,omitempty"`
	Failed   string `json:"failed,omitempty"`
}

func (s *spread) finish() {
	if len(s.Values) == 0 {
		return
	}
	v := slices.Sorted(slices.Values(s.Values))
	s.Min, s.Max = v[0], v[len(v)-1]
	s.Median = (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func (s *spread) known() bool { return s != nil && len(s.Values) > 0 }

// text is a cell of the table.
func (s *spread) text() string {
	switch {
	case s == nil:
		return "–"
	case !s.known():
		return "failed: " + s.Failed
	case s.Failures > 0:
		return fmt.Sprintf("%s (%s..%s), failed %d of %d times: %s", number(s.Median), number(s.Min), number(s.Max),
			s.Failures, s.Failures+len(s.Values), s.Failed)
	}
	return fmt.Sprintf("%s (%s..%s)", number(s.Median), number(s.Min), number(s.Max))
}

// number has three digits that matter, and thousands apart.
func number(v float64) string {
	a := math.Abs(v)
	switch {
	case a >= 1000:
		s := fmt.Sprintf("%.0f", v)
		for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	case a >= 100 || a == math.Trunc(a) && a >= 10 || a == 0:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// row is a figure with its measurements, by system.
type row struct {
	Name    string             `json:"name"`
	Unit    string             `json:"unit"`
	Systems map[string]*spread `json:"systems"`
	figure  figure
}

// rows puts the samples together. A step that gave nothing has no row.
func rows(steps []step, samples []sample) (list []*row) {
	for _, s := range steps {
		for _, f := range s.figures {
			r := &row{Name: f.name, Unit: f.unit, Systems: map[string]*spread{}, figure: f}
			for _, one := range samples {
				if one.Step != s.figures[0].name {
					continue
				}
				sp := r.Systems[one.System]
				if sp == nil {
					sp = &spread{}
					r.Systems[one.System] = sp
				}
				if one.Error != "" {
					sp.Failures, sp.Failed = sp.Failures+1, one.Error
				} else {
					sp.Values = append(sp.Values, f.value(one.Result))
				}
			}
			for _, sp := range r.Systems {
				sp.finish()
			}
			if len(r.Systems) > 0 {
				list = append(list, r)
			}
		}
	}
	return list
}

// target is the target in words.
func (f *figure) target() string {
	switch {
	case f.bounded:
		return "≤ " + strings.TrimSpace(number(f.bound)+" "+f.unit)
	case f.ratio == 0:
		return "–"
	case f.more:
		return "≥ " + times(f.ratio)
	}
	return "≤ " + times(f.ratio)
}

func times(v float64) string {
	if v >= 10 {
		return fmt.Sprintf("%.0fx", v)
	}
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", v), "0"), ".") + "x"
}

// ratio is the ratio of one system's median to another's.
func (r *row) ratio(name, to string) string {
	a, b := r.Systems[name], r.Systems[to]
	if !a.known() || !b.known() || b.Median == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2fx", a.Median/b.Median)
}

// against is the ratio to another system, and whether it meets the target.
func (r *row) against(name string) (ratio, met string) {
	ours, theirs := r.Systems["lockkeeper"], r.Systems[name]
	ratio = r.ratio("lockkeeper", name)
	switch f := &r.figure; {
	case f.bounded && ours.known() && name == "zookeeper":
		met = yes(f.met(ours.Median, 0))
	case !f.bounded && f.ratio != 0 && ratio != "–":
		met = yes(f.met(ours.Median, theirs.Median))
	}
	return ratio, met
}

// beside is against in one cell.
func (r *row) beside(name string) string {
	ratio, met := r.against(name)
	if met == "" {
		return ratio
	}
	return ratio + ", " + met
}

// limit is the ratio to the limit, with the goal if there is one.
func (r *row) limit() string {
	ours, limit := r.Systems["lockkeeper"], r.Systems["limit"]
	if !ours.known() || !limit.known() || limit.Median == 0 {
		return "–"
	}
	text := fmt.Sprintf("%.2fx", ours.Median/limit.Median)
	switch f := &r.figure; {
	case f.limit == 0:
		return text
	case f.more:
		return fmt.Sprintf("%s (≥ %s: %s)", text, times(1/f.limit), yes(f.near(ours.Median, limit.Median)))
	default:
		return fmt.Sprintf("%s (≤ %s: %s)", text, times(f.limit), yes(f.near(ours.Median, limit.Median)))
	}
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "**no**"
}

// writeTable writes it in Markdown, without the figures of the open loops.
func writeTable(w io.Writer, rows []*row) {
	if !slices.ContainsFunc(rows, func(r *row) bool { return r.figure.open == nil }) {
		return
	}
	writeHead(w, []string{"figure", "", "lockkeeper", "ZooKeeper", "ratio", "target", "met", "etcd", "ratio, met",
		title("etcd37"), "ratio, met", "limit", "ratio"})
	for _, r := range rows {
		if r.figure.open != nil {
			continue
		}
		zkRatio, zkMet := r.against("zookeeper")
		writeCells(w, []string{
			r.Name, r.Unit, r.Systems["lockkeeper"].text(), r.Systems["zookeeper"].text(), zkRatio, r.figure.target(),
			zkMet, r.Systems["etcd"].text(), r.beside("etcd"), r.Systems["etcd37"].text(), r.beside("etcd37"),
			r.Systems["limit"].text(), r.limit(),
		})
	}
}

// writeHead writes the first row.
func writeHead(w io.Writer, cells []string) {
	writeCells(w, cells)
	fmt.Fprintln(w, strings.Repeat("|---", len(cells))+"|")
}

// title is the name of a system in a table.
func title(name string) string {
	switch name {
	case "zookeeper":
		return "ZooKeeper"
	case "etcd37":
		return "etcd 3.7"
	}
	return name
}

// writeCells writes one row.
func writeCells(w io.Writer, cells []string) {
	for i, c := range cells {
		cells[i] = strings.NewReplacer("|", "/", "\n", " ").Replace(c)
	}
	fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
}

// writeMachine writes how fast the disk was, before and after; nil is unknown.
func writeMachine(w io.Writer, before, after *machine) {
	cells := func(m *machine) [2]string {
		if m == nil {
			return [2]string{"–", "–"}
		}
		return [2]string{number(m.FdatasyncUs), number(m.FdatasyncP99Us)}
	}
	b, a := cells(before), cells(after)
	fmt.Fprintln(w, "| the disk under the data | | before | after |")
	fmt.Fprintln(w, "|---|---|---|---|")
	fmt.Fprintf(w, "| write of 512 bytes into a file that has its length, and fdatasync, p50 | us | %s | %s |\n", b[0],
		a[0])
	fmt.Fprintf(w, "| the same, p99 | us | %s | %s |\n", b[1], a[1])
}
