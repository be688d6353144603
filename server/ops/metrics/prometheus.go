package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// scrapesAtOnce bounds the requests for metrics that are answered at a time. Others get status 503.
const scrapesAtOnce = 4

// NewHandler answers with the metrics of a List, which read makes for each request, in the formats
// of Prometheus. With process there are also the metrics of the process and of the Go runtime,
// named as Prometheus clients name them.
func NewHandler(read func() List, process bool) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(collector(read))
	if process {
		r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: scrapesAtOnce})
}

// collector is the prometheus.Collector of a list.
type collector func() List

// Describe implements prometheus.Collector. Which metrics there are depends on the member's role.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	for _, m := range c() {
		out <- m.prometheus()
	}
}

// promQuantiles are the quantiles of advanced summaries in Prometheus, as in ZooKeeper; others have
// the first.
var promQuantiles = []float64{0.5, 0.9, 0.99}

func (m *Metric) prometheus() prometheus.Metric {
	var names, values []string
	if m.Label != "" {
		names, values = []string{m.Label}, []string{m.LabelValue}
	}
	desc := prometheus.NewDesc(m.PrometheusName(), m.Help, names, nil)
	if m.dist == nil {
		kind := prometheus.GaugeValue
		if m.Kind == KindCounter {
			kind = prometheus.CounterValue
		}
		return prometheus.MustNewConstMetric(desc, kind, m.float(), values...)
	}
	all := m.dist.All
	count, sum := uint64(all.Count), float64(all.Sum)*m.dist.Unit
	if m.Kind == KindHistogram {
		return prometheus.MustNewConstHistogram(desc, count, sum, m.dist.buckets(), values...)
	}
	quantiles := map[float64]float64{}
	for _, share := range promQuantiles {
		quantiles[share] = m.dist.quantile(share)
		if m.Kind == KindSummary {
			break
		}
	}
	return prometheus.MustNewConstSummary(desc, count, sum, quantiles, values...)
}

func (m *Metric) float() float64 {
	switch v := m.value.(type) {
	case int64:
		return float64(v)
	case float64:
		return v
	}
	panic("metrics: " + m.Name + " has no value") // the constructors make no such Metric
}

// buckets returns, for each bound, the number of values that do not exceed it. Whole numbers are
// below a bound if they do not exceed the one before it; of others, the values on the bound itself
// are too few to matter.
func (d *Distribution) buckets() map[float64]uint64 {
	b := make(map[float64]uint64, len(d.Bounds))
	for _, bound := range d.Bounds {
		le := float64(bound) * d.Unit
		if d.Unit == 1 {
			le = float64(bound - 1)
		}
		b[le] = uint64(d.All.Below(bound))
	}
	return b
}
