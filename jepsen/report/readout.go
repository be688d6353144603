package report

import (
	"fmt"
	"strings"
	"time"
)

// A readout is what the script shows for the second under the pointer: texts, made here, one for each slice of time.
type readout struct {
	LengthMs int64    `json:"lengthMs"`
	SliceMs  int64    `json:"sliceMs"`
	Texts    []string `json:"texts"`
}

// newReadout writes the texts.
func newReadout(length time.Duration, figures Figures, faults []Fault) readout {
	r := readout{LengthMs: length.Milliseconds(), SliceMs: figures.SliceMs}
	slice := time.Duration(figures.SliceMs) * time.Millisecond
	for at := time.Duration(0); at < length; at += slice {
		i := int(at / slice)
		parts := []string{clock(at, slice)}
		for _, o := range figures.Ops[:min(len(figures.Ops), maxLatencies)] {
			s := o.Slices[i]
			if s.OK+s.Fail+s.Info == 0 {
				continue
			}
			text := fmt.Sprintf("%s: %d ok", o.F, s.OK)
			if s.Fail > 0 {
				text += fmt.Sprintf(", %d fail", s.Fail)
			}
			if s.Info > 0 {
				text += fmt.Sprintf(", %d unknown", s.Info)
			}
			if s.OK > 0 {
				text += fmt.Sprintf(" (p50 %s, p99 %s, max %s)", milliseconds(s.Latency.P50Ms), milliseconds(s.Latency.P99Ms), milliseconds(s.Latency.MaxMs))
			}
			parts = append(parts, text)
		}
		if broken := faultsAt(faults, at, at+slice); broken != "" {
			parts = append(parts, broken)
		}
		r.Texts = append(r.Texts, strings.Join(parts, " · "))
	}
	return r
}

// faultsAt names what was broken in a slice of time, the first few.
func faultsAt(faults []Fault, from, to time.Duration) string {
	const few = 4
	var names []string
	for _, f := range faults {
		if f.From < to && f.To >= from {
			names = append(names, clipTo(strings.TrimSpace(f.Kind+" "+f.On), 60))
		}
	}
	if len(names) > few {
		names = append(names[:few], fmt.Sprintf("and %d more", len(names)-few))
	}
	return strings.Join(names, ", ")
}
