package gateway

import "github.com/prometheus/client_golang/prometheus"

// roomMetrics are the metrics of waiting rooms. A label is the name of a room or an outcome, never a client.
type roomMetrics struct{ *Gateway }

var (
	roomWaiting = prometheus.NewDesc("weir_room_waiting",
		"Visitors in line, by the latest answer of the room's line: of all gateways that share it.", []string{"room"}, nil)
	roomInside = prometheus.NewDesc("weir_room_inside",
		"Visitors inside, those who were called among them, by the latest answer of the room's line.", []string{"room"}, nil)
	roomVisitors = prometheus.NewDesc("weir_room_visitors_total",
		"Visitors by what became of them at this gateway: joined the line, entered, were refused as it was full, turned_away as their address had brought too many; "+
			"lapsed, as they did not ask any more, missed their turn, left.", []string{"room", "outcome"}, nil)
	roomTickets = prometheus.NewDesc("weir_room_tickets_refused_total",
		"Tickets that were not taken, by why: forged, of another client, expired, finished.", []string{"room", "reason"}, nil)
	roomHasty  = prometheus.NewDesc("weir_room_hasty_total", "Questions of visitors that came too often, and were not asked.", []string{"room"}, nil)
	roomFailed = prometheus.NewDesc("weir_room_store_failures_total", "Questions that the room's store did not answer.", []string{"room"}, nil)
)

// Describe is of prometheus.Collector.
func (m roomMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{roomWaiting, roomInside, roomVisitors, roomTickets, roomHasty, roomFailed} {
		ch <- d
	}
}

// Collect is of prometheus.Collector.
func (m roomMetrics) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for _, s := range m.Rooms() {
		ch <- prometheus.MustNewConstMetric(roomWaiting, prometheus.GaugeValue, float64(s.Waiting), s.Name)
		ch <- prometheus.MustNewConstMetric(roomInside, prometheus.GaugeValue, float64(s.Inside), s.Name)
		for _, o := range []struct {
			outcome string
			n       uint64
		}{
			{"joined", s.Joined}, {"entered", s.Entered}, {"full", s.Full}, {"turned_away", s.TooManyJoins},
			{"lapsed", s.Lapsed}, {"missed", s.Missed}, {"left", s.Left},
		} {
			counter(roomVisitors, o.n, s.Name, o.outcome)
		}
		for _, r := range []struct {
			reason string
			n      uint64
		}{{"forged", s.Forged}, {"client", s.Client}, {"expired", s.Expired}, {"finished", s.Finished}} {
			counter(roomTickets, r.n, s.Name, r.reason)
		}
		counter(roomHasty, s.PollsTooOften, s.Name)
		counter(roomFailed, s.StoreFailures, s.Name)
	}
}
