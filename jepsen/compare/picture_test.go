package main

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

// A picture is well-formed XML with the axes, their units, and each name once in the legend; all
// points are in their plots.
func TestPicture(t *testing.T) {
	c := &chart{Title: "Latency & <load>", Subtitle: "today", X: "load, 1/s", Y: "latency, ms", Panels: []panel{
		{"p50", []curve{{"lockkeeper", []point{{1000, 0.4}, {9000, 0.7}}}, {"etcd", []point{{1000, 3}, {9000, 1500}}}}},
		{"p99", []curve{{"etcd", []point{{1000, 8}}}}},
	}}
	var b strings.Builder
	if err := c.write(&b); err != nil {
		t.Fatal(err)
	}
	var texts []string
	elements := map[string]int{}
	d := xml.NewDecoder(strings.NewReader(b.String()))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
		switch token := token.(type) {
		case xml.StartElement:
			elements[token.Name.Local]++
		case xml.CharData:
			texts = append(texts, string(token))
		}
	}
	for text, times := range map[string]int{"Latency & <load>": 2, "today": 1, "load, 1/s": 1, "latency, ms": 1,
		"p50": 1, "p99": 1, "lockkeeper": 1, "etcd": 1, "0.2": 1, "2000": 1, "8,000": 2, "etcd: 1,500 at 9,000": 1} {
		n := 0
		for _, have := range texts {
			if have == text {
				n++
			}
		}
		if n != times {
			t.Errorf("%q is there %d times, want %d", text, n, times)
		}
	}
	if elements["script"] != 0 || elements["svg"] != 1 || elements["g"] != 2 {
		t.Errorf("elements: %v", elements)
	}
	if !strings.Contains(b.String(), `d="M26.4,`) {
		t.Errorf("no curve that begins a tenth from the left in\n%s", b.String())
	}
}

// A chart without a point is a picture, too.
func TestEmptyPicture(t *testing.T) {
	var b strings.Builder
	if err := (&chart{Panels: []panel{{Title: "p50"}}}).write(&b); err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal([]byte(b.String()), new(struct{})); err != nil {
		t.Errorf("%v in\n%s", err, b.String())
	}
}

func TestScales(t *testing.T) {
	labels := func(s scale) (list []string) {
		for _, m := range s.ticks {
			if m.At < 0 || m.At > max(plotWidth, plotTop+plotHeight) {
				t.Errorf("%s is at %v", m.Label, m.At)
			}
			list = append(list, m.Label)
		}
		return list
	}
	for most, want := range map[float64]string{
		9000: "0 2,000 4,000 6,000 8,000 10,000", 10_000: "0 2,000 4,000 6,000 8,000 10,000", 1001: "0 500 1,000 1,500",
		18_984: "0 5,000 10,000 15,000 20,000",
	} {
		if got := labels(linear(most)); strings.Join(got, " ") != want {
			t.Errorf("to %v: %v, want %s", most, got, want)
		}
	}
	for _, tt := range []struct {
		low, high float64
		want      string
	}{
		{0.43, 1500, "0.2 0.5 1 2 5 10 20 50 100 200 500 1000 2000"}, {0.2, 2, "0.2 0.5 1 2"}, {5, 5, "5 10"},
		{0.0007, 0.003, "0.0005 0.001 0.002 0.005"},
	} {
		s := logarithmic(tt.low, tt.high)
		if got := labels(s); strings.Join(got, " ") != tt.want {
			t.Errorf("from %v to %v: %v, want %s", tt.low, tt.high, got, tt.want)
		}
		if bottom, top := s.ticks[0].At, s.ticks[len(s.ticks)-1].At; bottom != plotTop+plotHeight || top != plotTop {
			t.Errorf("from %v to %v: bottom at %v, top at %v", tt.low, tt.high, bottom, top)
		}
	}
	if s := logarithmic(1, 100); s.place(10) != plotTop+plotHeight/2 {
		t.Errorf("10 of 1 to 100 is at %v", s.place(10))
	}
	if s := linear(10); !slices.Equal([]float64{s.place(0), s.place(5)}, []float64{0, plotWidth / 2}) {
		t.Errorf("5 of 10 is at %v", s.place(5))
	}
}
