package gateway

import "github.com/prometheus/client_golang/prometheus"

// roomMetrics are the metrics of waiting rooms. Labels are names of rooms, and outcomes; never a
// client.
type roomMetrics struct{ *Gateway }

var (
	roomWaiting = prometheus.NewDesc("weir_room_waiting",
		"Visitors waiting, of all gateways that share the room, as last seen by this one.", []string{"room"}, nil)
	roomInside = prometheus.NewDesc("weir_room_inside",
		"Visitors inside, including admitted ones who have not entered yet, as last seen by this gateway.", []string{"room"}, nil)
	roomVisitors = prometheus.NewDesc("weir_room_visitors_total",
		"Visitors at this gateway: joined the queue, entered; refused because it was full, by too_many_joins or too_many_visitors from one address, or because it is drained (closed); "+
			"lapsed (stopped polling), missed their turn, left.", []string{"room", "outcome"}, nil)
	roomTickets = prometheus.NewDesc("weir_room_tickets_refused_total",
		"Refused tickets by reason: forged, client (bound to another one), expired, finished (a visit that has ended).", []string{"room", "reason"}, nil)
	roomPollsTooOften = prometheus.NewDesc("weir_room_polls_too_often_total", "Polls of visitors that came too often.", []string{"room"}, nil)
	roomFailed        = prometheus.NewDesc("weir_room_store_failures_total", "Polls that failed because the room's store was unavailable.", []string{"room"}, nil)
)

// Describe is of prometheus.Collector.
func (m roomMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{roomWaiting, roomInside, roomVisitors, roomTickets, roomPollsTooOften, roomFailed} {
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
			{"joined", s.Joined}, {"entered", s.Entered}, {"full", s.Full}, {"too_many_joins", s.TooManyJoins}, {"too_many_visitors", s.TooManyVisitors}, {"closed", s.Closed},
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
		counter(roomPollsTooOften, s.PollsTooOften, s.Name)
		counter(roomFailed, s.StoreFailures, s.Name)
	}
}
