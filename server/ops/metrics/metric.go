package metrics

import (
	"iter"
	"math"

	"lockkeeper/internal/histogram"
)

// Kind is the type of a metric.
type Kind uint8

const (
	KindGauge     Kind = iota // goes up and down
	KindCounter               // goes up only, until the start or the four-letter word srst
	KindSummary               // how values are distributed: count, sum, median
	KindAdvanced              // the same, with more quantiles
	KindHistogram             // the same, with buckets
)

// String returns the type as docs/metrics.md has it.
func (k Kind) String() string {
	return [...]string{"gauge", "counter", "summary", "summary (advanced)", "histogram"}[k]
}

// Metric is one measurement. Make it with Gauge, Counter, Summary, Advanced or Histogram.
type Metric struct {
	Name string // without zk_ or lockkeeper_
	Help string // one line, with the unit
	Kind Kind
	// Label is the name of a label, if several metrics share the name; LabelValue is the value.
	Label, LabelValue string

	value any // of a gauge or a counter: int64 or float64
	dist  *Distribution
}

// Number is the type of a gauge's or counter's value. A float64 is written with a decimal point.
type Number interface {
	~int | ~int64 | ~uint8 | ~uint64 | float64
}

// Gauge makes a metric that goes up and down.
func Gauge[N Number](name, help string, value N) Metric {
	return Metric{Name: name, Help: help, Kind: KindGauge, value: number(value)}
}

// Counter makes a metric that goes up only.
func Counter[N Number](name, help string, value N) Metric {
	return Metric{Name: name, Help: help, Kind: KindCounter, value: number(value)}
}

func number[N Number](n N) any {
	if f, ok := any(n).(float64); ok {
		return f
	}
	return int64(n)
}

// Distribution is the value of a summary or a histogram.
type Distribution struct {
	All *histogram.Snapshot
	// Recent has the values for quantiles, see Recents. nil means All.
	Recent *histogram.Snapshot
	// Unit is the factor of the observed numbers: 1e-6 shows nanoseconds in ms.
	Unit float64
	// Bounds are the upper bounds of a histogram's buckets, as observed, in ascending order.
	Bounds []int64
}

// Summary makes a metric of which Prometheus has the count, the sum and the median.
func Summary(name, help string, d Distribution) Metric {
	return Metric{Name: name, Help: help, Kind: KindSummary, dist: &d}
}

// Advanced is Summary with the quantiles 0.5, 0.9 and 0.99.
func Advanced(name, help string, d Distribution) Metric {
	return Metric{Name: name, Help: help, Kind: KindAdvanced, dist: &d}
}

// Histogram makes a metric of which Prometheus has buckets. d has bounds.
func Histogram(name, help string, d Distribution) Metric {
	return Metric{Name: name, Help: help, Kind: KindHistogram, dist: &d}
}

// With returns the metric with a label.
func (m Metric) With(label, value string) Metric {
	m.Label, m.LabelValue = label, value
	return m
}

// Own reports whether the metric is lockkeeper's own: ZooKeeper has none of that name.
func (m Metric) Own() bool { return !InZooKeeper(m.Name) }

// PrometheusName is the name of the metric in Prometheus.
func (m Metric) PrometheusName() string {
	if m.Own() {
		return "lockkeeper_" + m.Name
	}
	return m.Name
}

func (d *Distribution) quantile(share float64) float64 {
	s := d.Recent
	if s == nil {
		s = d.All
	}
	return float64(s.Quantile(share)) * d.Unit
}

// List has a member's measurements at one moment.
type List []Metric

// mntrQuantiles are those that mntr has of advanced summaries.
var mntrQuantiles = []struct {
	name  string
	share float64
}{{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}, {"p999", 0.999}}

// Lines yields the lines of mntr, without zk_ in front: names, and values that are int64 or
// float64. As in ZooKeeper a summary becomes several lines, of integers but for the mean. It is not
// for metrics with labels.
func (l List) Lines() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for i := range l {
			if !l[i].lines(yield) {
				return
			}
		}
	}
}

func (m *Metric) lines(yield func(string, any) bool) bool {
	name := m.Name
	decimals := 1e4 // as ZooKeeper writes them
	if m.Own() {
		decimals = 1e6
	}
	rounded := func(f float64) float64 { return math.Round(f*decimals) / decimals }
	if f, ok := m.value.(float64); ok {
		return yield(name, rounded(f))
	}
	if m.dist == nil {
		return yield(name, m.value)
	}
	all, unit := m.dist.All, m.dist.Unit
	scaled := func(f float64) any {
		if m.Own() && unit < 1 {
			return rounded(f)
		}
		return int64(math.Round(f))
	}
	ok := yield("avg_"+name, rounded(all.Mean()*unit)) &&
		yield("min_"+name, scaled(float64(all.Min)*unit)) && yield("max_"+name, scaled(float64(all.Max)*unit)) &&
		yield("cnt_"+name, all.Count) && yield("sum_"+name, scaled(float64(all.Sum)*unit))
	if m.Kind == KindSummary {
		return ok
	}
	for _, q := range mntrQuantiles {
		ok = ok && yield(q.name+"_"+name, scaled(m.dist.quantile(q.share)))
	}
	return ok
}
