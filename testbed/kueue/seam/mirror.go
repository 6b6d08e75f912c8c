package framework

import (
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"sigs.k8s.io/kueue/pkg/metrics"
)

// mirror copies the metrics of the process into the vectors of this process, where the specs read them. Gauges are set. Counters and
// histograms increase by the difference since the last copy, also after a restart of the process. Series that the process no longer has are
// deleted.
type mirror struct {
	address string
	client  *http.Client
	done    chan struct{}
	ended   sync.WaitGroup
	known   map[string]series
	totals  map[string]float64
	told    map[string]bool
}

// series is one series of a metric vector.
type series struct {
	vector any
	labels prometheus.Labels
}

func (s series) delete() {
	s.vector.(interface{ Delete(prometheus.Labels) bool }).Delete(s.labels)
}

// Series of counters and histograms of ended processes.
var (
	leftLock sync.Mutex
	left     = map[string]series{}
)

// forgetLeft deletes the series of ended processes. It is called between two specs.
func forgetLeft() {
	leftLock.Lock()
	defer leftLock.Unlock()
	for _, s := range left {
		s.delete()
	}
	left = map[string]series{}
}

const mirrorPeriod = 150 * time.Millisecond

func mirrorFrom(address string) *mirror {
	m := &mirror{address: address, client: &http.Client{Timeout: 5 * time.Second}, done: make(chan struct{}), known: map[string]series{},
		totals: map[string]float64{}, told: map[string]bool{}}
	m.ended.Add(1)
	go func() {
		defer m.ended.Done()
		for {
			if err := m.copy(); err != nil {
				m.tell(err.Error())
			}
			select {
			case <-m.done:
				return
			case <-time.After(mirrorPeriod):
			}
		}
	}()
	return m
}

// stop copies a last time and deletes the gauges.
func (m *mirror) stop() {
	close(m.done)
	m.ended.Wait()
	_ = m.copy()
	leftLock.Lock()
	defer leftLock.Unlock()
	for key, s := range m.known {
		if _, gauge := s.vector.(*prometheus.GaugeVec); gauge {
			s.delete()
		} else {
			left[key] = s
		}
	}
}

// tell logs a message once.
func (m *mirror) tell(what string) {
	if !m.told[what] {
		m.told[what] = true
		fmt.Fprintf(ginkgo.GinkgoWriter, "seam: metrics: %s\n", what)
		if os.Getenv("SEAM_DEBUG") != "" {
			fmt.Fprintf(os.Stderr, "seam: metrics: %s\n", what)
		}
	}
}

func (m *mirror) copy() error {
	answer, err := m.client.Get(m.address)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", m.address, answer.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for name, vector := range metrics.SeamVectors() {
		family := families[name]
		if family == nil {
			continue
		}
		for _, sample := range family.GetMetric() {
			labels := prometheus.Labels{}
			for _, pair := range sample.GetLabel() {
				labels[pair.GetName()] = pair.GetValue()
			}
			key := fmt.Sprint(name, labels)
			if err := m.one(key, vector, labels, sample); err != nil {
				m.tell(fmt.Sprintf("%s%v: %v", name, labels, err))
				continue
			}
			m.known[key] = series{vector, labels}
			seen[key] = true
		}
	}
	leftLock.Lock()
	defer leftLock.Unlock()
	for key, s := range m.known {
		delete(left, key)
		if !seen[key] {
			s.delete()
			delete(m.known, key)
			delete(m.totals, key)
			delete(m.totals, key+" sum")
		}
	}
	return nil
}

// one copies one series. It returns an error if the labels or the kind differ from those of the vector.
func (m *mirror) one(key string, vector any, labels prometheus.Labels, sample *dto.Metric) error {
	switch vector := vector.(type) {
	case *prometheus.GaugeVec:
		if sample.Gauge == nil {
			return fmt.Errorf("it should be a gauge")
		}
		to, err := vector.GetMetricWith(labels)
		if err != nil {
			return err
		}
		to.Set(sample.GetGauge().GetValue())
	case *prometheus.CounterVec:
		if sample.Counter == nil {
			return fmt.Errorf("it should be a counter")
		}
		now := sample.GetCounter().GetValue()
		if now < m.totals[key] {
			// The series was deleted and created again since the last copy.
			vector.Delete(labels)
			delete(m.totals, key)
		}
		to, err := vector.GetMetricWith(labels)
		if err != nil {
			return err
		}
		to.Add(m.more(key, now))
	case *prometheus.HistogramVec:
		if sample.Histogram == nil {
			return fmt.Errorf("it should be a histogram")
		}
		now := float64(sample.GetHistogram().GetSampleCount())
		if now < m.totals[key] {
			vector.Delete(labels)
			delete(m.totals, key)
			delete(m.totals, key+" sum")
		}
		to, err := vector.GetMetricWith(labels)
		if err != nil {
			return err
		}
		// Only the number of observations and their mean are those of the process.
		count, sum := m.more(key, now), m.more(key+" sum", sample.GetHistogram().GetSampleSum())
		for range int(count) {
			to.Observe(sum / count)
		}
	}
	return nil
}

// more returns the increase of a total.
func (m *mirror) more(key string, now float64) float64 {
	before := m.totals[key]
	m.totals[key] = now
	return max(now-before, 0)
}
