package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"lockkeeper/bench"
)

// capacity is the throughput of writes that the open loops are shares of.
type capacity struct {
	// System is ZooKeeper, or the first one if ZooKeeper is not measured.
	System    string  `json:"system"`
	PerSecond float64 `json:"perSecond"`
}

// capacityTries is how often the capacity is measured; the median counts.
const capacityTries = 3

// openClients is the number of connections of an open loop, and of the closed loop that measures
// the capacity.
const openClients = 128

// openSteps are writes at given times, at shares of the capacity.
func openSteps() (list []step) {
	for _, share := range []int{25, 50, 75, 90} {
		s := step{stage: warm, load: load{workload: "write", clients: openClients, etcd: true, share: share}}
		for i := range openColumns {
			c := &openColumns[i]
			s.figures = append(s.figures, figure{name: fmt.Sprintf("open loop at %d %% of the capacity, %s", share, c.name),
				unit: c.unit, open: c, value: c.value})
		}
		list = append(list, s)
	}
	return list
}

// openColumn is a figure of an open loop, and the column of the table that has it.
type openColumn struct {
	name, unit string
	value      func(*bench.Result) float64
	median     bool // alone, without the least and the most
}

var openColumns = []openColumn{
	{"p50", "ms", p50, false},
	{"p99", "ms", p99, false},
	{"p99.9", "ms", func(r *bench.Result) float64 { return r.Latency.P999 }, false},
	{"longest", "ms", func(r *bench.Result) float64 { return r.Latency.Max }, false},
	{"replies", "1/s", perSecond, true},
	{"failed or without a reply", "%", unanswered, true},
	{"generator late, p99", "ms", special("generator late, p99 ms"), true},
}

// unanswered is the part of the requests, in percent, that failed or had no reply in the end.
func unanswered(r *bench.Result) float64 {
	failed := 0
	for _, n := range r.Errors {
		failed += n
	}
	all := float64(r.Ops) + float64(failed)
	if all == 0 {
		return 100
	}
	return 100 * (special("requests without a reply")(r) + float64(failed)) / all
}

// measureCapacity measures the capacity if one of the steps needs it.
func (rep *report) measureCapacity(ctx context.Context, c config, list []step, dir string, progress io.Writer) {
	if !slices.ContainsFunc(list, func(s step) bool { return s.load.share > 0 }) {
		return
	}
	of := rep.systems[max(0, slices.IndexFunc(rep.systems, func(s *system) bool { return s.name == "zookeeper" }))]
	r := newRound(0, of, filepath.Join(dir, "capacity"), c, progress)
	write := step{stage: warm, load: load{workload: "write", clients: openClients, etcd: true}, times: capacityTries,
		figures: []figure{throughput("capacity", 0)}}
	r.run(ctx, []step{write})
	var found spread
	for _, s := range r.samples {
		if s.Error == "" {
			found.Values = append(found.Values, s.Result.PerSecond)
		}
	}
	found.finish()
	rep.Capacity = capacity{of.name, found.Median}
}

// at is the load with the rate of its share.
func (c capacity) at(l load) (load, error) {
	if l.share > 0 && c.PerSecond == 0 {
		return l, fmt.Errorf("the capacity of %s is not known", c.System)
	}
	l.rate = c.PerSecond * float64(l.share) / 100
	return l, nil
}

// openPoint is one system at one share of the capacity.
type openPoint struct {
	share     int
	perSecond float64 // of the requests
	system    string
	rows      []*row
}

// openPoints are the measurements of the open loops, by share and system.
func (rep *report) openPoints() (list []openPoint) {
	for _, s := range openSteps() {
		var group []*row
		for _, r := range rep.Rows {
			if slices.ContainsFunc(s.figures, func(f figure) bool { return f.name == r.Name }) {
				group = append(group, r)
			}
		}
		for _, system := range rep.systems {
			if len(group) > 0 && group[0].Systems[system.name] != nil {
				rate := rep.Capacity.PerSecond * float64(s.load.share) / 100
				list = append(list, openPoint{s.load.share, rate, system.name, group})
			}
		}
	}
	return list
}

// writeOpen writes the table of the open loops, if there are any.
func (rep *report) writeOpen(w io.Writer) {
	points := rep.openPoints()
	if len(points) == 0 {
		return
	}
	fmt.Fprintf(w, "\nOpen loop: %d connections write at given times, at shares of the capacity of %s "+
		"(%s writes a second, closed loop).\n\n", openClients, title(rep.Capacity.System), number(rep.Capacity.PerSecond))
	head := []string{"load", "requests, 1/s", "system"}
	for _, r := range points[0].rows {
		head = append(head, r.figure.open.name+", "+r.Unit)
	}
	writeHead(w, head)
	for _, p := range points {
		cells := []string{fmt.Sprintf("%d %%", p.share), number(p.perSecond), title(p.system)}
		for _, r := range p.rows {
			s := r.Systems[p.system]
			if r.figure.open.median && s.known() {
				cells = append(cells, number(s.Median))
			} else {
				cells = append(cells, s.text())
			}
		}
		writeCells(w, cells)
	}
}

// loadPicture is the file with the picture of the open loops.
const loadPicture = "load.svg"

// drawOpen draws the latencies of the open loops, if there are any, into a directory.
func (rep *report) drawOpen(dir string) error {
	points := rep.openPoints()
	if len(points) == 0 {
		return nil
	}
	c := &chart{
		Title: "Latency of writes from the time at which they were due",
		Subtitle: fmt.Sprintf("%s, %d connections, three members on one machine, %d rounds of %g s; %s", rep.Date,
			openClients, rep.Rounds, rep.Seconds, rep.Machine[0]),
		X: "load, writes a second", Y: "latency, ms (logarithmic)",
	}
	for i, r := range points[0].rows[:min(openPanels, len(points[0].rows))] {
		p := panel{Title: r.figure.open.name}
		for _, s := range rep.systems {
			l := curve{Name: title(s.name)}
			for _, at := range points {
				if v := at.rows[i].Systems[s.name]; at.system == s.name && v.known() && v.Median > 0 {
					l.Points = append(l.Points, point{at.perSecond, v.Median})
				}
			}
			if len(l.Points) > 0 {
				p.Curves = append(p.Curves, l)
			}
		}
		c.Panels = append(c.Panels, p)
	}
	var b bytes.Buffer
	if err := c.write(&b); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, loadPicture), b.Bytes(), 0o644)
}

// openPanels is the number of columns, the first ones, that are drawn.
const openPanels = 3
