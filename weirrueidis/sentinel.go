package weirrueidis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir/internal/pause"
)

// rueidis has a client for Sentinel, which is not used: while a sentinel names a master that is
// dead, each of its refreshes fails, closes the connection to the sentinel, and so begins one more
// loop of refreshes (1.0.79, sentinelClient.listWatch): hundreds of goroutines and connections a
// second, and thousands of commands to the sentinel that is to elect. Here one goroutine asks, with
// a backoff, and keeps one client of the master.

const (
	refreshEvery  = 2 * time.Second       // how often a sentinel is asked for the master, in case one of its messages was missed
	firstRetry    = 50 * time.Millisecond // after a round that found no master
	lastRetry     = time.Second           // of the backoff
	betweenRounds = 50 * time.Millisecond // at least, however many messages come
	askTimeout    = time.Second           // of one question, after connecting
	maxSentinels  = 16                    // that are known by what other sentinels say
	switchChannel = "+switch-master"
)

// A masterWatch keeps the link's client connected to the master that the sentinels name.
type masterWatch struct {
	link  *link
	hosts []string                 // sentinels to ask, the one that answered last first
	open  map[string]*sentinelConn // connections to them
	addr  string                   // of the link's client
	news  chan struct{}            // a sentinel says that the master has changed
}

// watch follows the master until the link is closed.
func (l *link) watch() {
	w := &masterWatch{link: l, hosts: slices.Clone(l.addr.Hosts), open: map[string]*sentinelConn{}, news: make(chan struct{}, 1)}
	defer w.keep("")
	for failures := 0; ; {
		wait := jitter(refreshEvery)
		if err := w.round(); err != nil {
			l.failed(err)
			wait = delay(firstRetry, lastRetry, failures)
			failures++
		} else {
			failures = 0
		}
		if !w.wait(wait) {
			return
		}
	}
}

// wait returns after a duration, or earlier where a sentinel has news, and reports false where the
// link is closed.
func (w *masterWatch) wait(d time.Duration) bool {
	if pause.For(w.link.ctx, min(d, betweenRounds)) != nil {
		return false
	}
	timer := time.NewTimer(d - min(d, betweenRounds))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.news:
	case <-w.link.ctx.Done():
		return false
	}
	return true
}

// round asks one sentinel after the other until one names a server that says that it is the master.
func (w *masterWatch) round() error {
	var errs []error
	tried := map[string]error{}
	for _, host := range slices.Clone(w.hosts) {
		if w.link.ctx.Err() != nil {
			return w.link.ctx.Err()
		}
		master, err := w.ask(host)
		if err != nil {
			errs = append(errs, fmt.Errorf("sentinel %s: %w", host, err))
			continue
		}
		if _, ok := tried[master]; ok {
			continue
		}
		if err := w.follow(master); err != nil {
			tried[master] = err
			errs = append(errs, fmt.Errorf("%s, the master by sentinel %s: %w", master, host, err))
			continue
		}
		w.keep(host)
		return nil
	}
	return errors.Join(errs...)
}

// keep closes the connections to all sentinels but one.
func (w *masterWatch) keep(host string) {
	for other := range w.open {
		if other != host {
			w.drop(other)
		}
	}
}

func (w *masterWatch) drop(host string) {
	if s := w.open[host]; s != nil {
		delete(w.open, host)
		s.close()
	}
}

// ask returns the master's address, and learns the addresses of other sentinels.
func (w *masterWatch) ask(host string) (master string, err error) {
	s := w.open[host]
	if s != nil && s.broken() {
		w.drop(host)
		s = nil
	}
	if s == nil {
		if s, err = w.connect(host); err != nil {
			return "", err
		}
		w.open[host] = s
	}
	ctx, cancel := context.WithTimeout(w.link.ctx, askTimeout)
	defer cancel()
	b, name := s.client.B(), w.link.addr.Master
	replies := s.client.DoMulti(ctx, b.SentinelGetMasterAddrByName().Master(name).Build(), b.SentinelSentinels().Master(name).Build())
	addr, err := replies[0].AsStrSlice()
	switch {
	case rueidis.IsRedisNil(err):
		return "", fmt.Errorf("it watches no master named %q: write the name in its configuration (sentinel monitor NAME ...)", name)
	case err != nil:
		w.drop(host)
		return "", err
	case len(addr) != 2:
		return "", fmt.Errorf("it names %q as the master", addr)
	}
	w.learn(host, replies[1])
	return net.JoinHostPort(addr[0], addr[1]), nil
}

// learn replaces the sentinels to ask by the one that answered, those of the URL, and those that it
// knows, up to a bound.
func (w *masterWatch) learn(host string, reply rueidis.RedisResult) {
	known := append([]string{host}, w.link.addr.Hosts...)
	list, err := reply.ToArray()
	if err != nil {
		return
	}
	for _, each := range list[:min(len(list), maxSentinels)] {
		if fields, err := each.AsStrMap(); err == nil && fields["ip"] != "" {
			known = append(known, net.JoinHostPort(fields["ip"], fields["port"]))
		}
	}
	w.hosts = w.hosts[:0]
	for _, host := range known {
		if !slices.Contains(w.hosts, host) {
			w.hosts = append(w.hosts, host)
		}
	}
}

// follow makes sure that the link's client is that of an address, and that the server there is a
// master.
func (w *masterWatch) follow(master string) error {
	if current := w.link.client.Load(); current != nil && w.addr == master {
		return w.isMaster(*current)
	}
	o := w.link.option
	o.InitAddress = []string{master}
	client, err := rueidis.NewClient(o)
	if err == nil {
		err = w.isMaster(client)
	}
	if err != nil {
		if client != nil {
			client.Close()
		}
		return err
	}
	w.addr = master
	w.link.use(client)
	return nil
}

// isMaster asks a server for its role. If the user of the connection may not run ROLE, the server
// counts as the master; a replica then refuses the writes.
func (w *masterWatch) isMaster(client rueidis.Client) error {
	ctx, cancel := context.WithTimeout(w.link.ctx, askTimeout)
	defer cancel()
	role, err := client.Do(ctx, client.B().Role().Build()).ToArray()
	if err != nil {
		if strings.HasPrefix(err.Error(), "NOPERM") {
			return nil
		}
		return err
	}
	if len(role) == 0 {
		return errors.New("it does not say whether it is a master")
	}
	if text, err := role[0].ToString(); err != nil || text != "master" {
		return fmt.Errorf("it says that it is a %q", text)
	}
	return nil
}

// A sentinelConn is a connection to a sentinel, with a goroutine that hears its messages.
type sentinelConn struct {
	client rueidis.Client
	lost   chan struct{} // closed once no more messages come, as the connection has ended
	done   chan struct{} // closed at the end of the goroutine
}

func (w *masterWatch) connect(host string) (*sentinelConn, error) {
	o := w.link.sentinel
	o.InitAddress = []string{host}
	client, err := rueidis.NewClient(o)
	if err != nil {
		if client != nil {
			client.Close()
		}
		return nil, err
	}
	s := &sentinelConn{client: client, lost: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		err := client.Receive(w.link.ctx, client.B().Subscribe().Channel(switchChannel).Build(), func(m rueidis.PubSubMessage) {
			if name, _, _ := strings.Cut(m.Message, " "); name == w.link.addr.Master {
				select {
				case w.news <- struct{}{}:
				default:
				}
			}
		})
		if _, refused := rueidis.IsRedisErr(err); !refused { // without the permission to subscribe, the regular questions find a new master
			close(s.lost)
		}
	}()
	return s, nil
}

// broken reports whether messages can come no more.
func (s *sentinelConn) broken() bool {
	select {
	case <-s.lost:
		return true
	default:
		return false
	}
}

func (s *sentinelConn) close() {
	s.client.Close()
	<-s.done
}
