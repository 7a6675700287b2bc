package resp

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirflow/weir/server/policyfile"
)

// reload makes a policy with these settings of listen.resp the active one.
func reload(t *testing.T, f *Face, settings, more string) {
	t.Helper()
	file, err := policyfile.Parse(f.policy.File().Path, []byte("listen: { resp: { address: \"127.0.0.1:0\""+settings+" } }\n"+more))
	if err == nil {
		err = f.policy.Update(t.Context(), file)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestReloadReachesOpenConnections: a new policy's store, users and limits count for clients that are
// connected, and a user whose password is gone has to authenticate again.
func TestReloadReachesOpenConnections(t *testing.T) {
	dead, err := net.Listen("tcp", "127.0.0.1:0") // it accepts nobody
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	f := serve(t, ", store: dead", "stores: { dead: { url: \"redis://"+dead.Addr().String()+"\", on_failure: deny } }\n")
	c := dial(t, f)
	c.does("CL.THROTTLE k 1 1 100", "1 ") // the store's fallback denies
	reload(t, f, "", someLimits)
	c.does("CL.THROTTLE k 1 1 100", "0 2 1")
	c.does("WEIR.TAKE nothing 0", "-ERR limit: ")
	c.does("WEIR.TAKE api 1 x COST 11", "allowed 0")
	reload(t, f, ", users: users.acl", "")
	c.does("WEIR.TAKE api 1 x", "-NOAUTH")
	c.does("PING", "-NOAUTH")
	c.does("AUTH app secret", "+OK")
	c.does("CL.THROTTLE k 1 1 100", "0 2 0")
	reload(t, f, ", users: users.acl, max_connections: 9", "")
	c.does("PING", "+PONG")
	users := filepath.Join(filepath.Dir(f.policy.File().Path), "users.acl")
	if err := os.WriteFile(users, fmt.Appendf(nil, "user app on #%x\n", sha256.Sum256([]byte("another"))), 0o600); err != nil {
		t.Fatal(err)
	}
	f.Tick()
	c.does("PING", "-NOAUTH")
	c.does("AUTH app secret", "-WRONGPASS")
	c.does("AUTH app another", "+OK")
	c.does("PING", "+PONG")
	reload(t, f, "", "")
	c.does("PING", "+PONG")
}

// TestTooManyClients: a client beyond max_connections gets Redis' error for it.
func TestTooManyClients(t *testing.T) {
	f := serve(t, ", max_connections: 1", "")
	first := dial(t, f)
	first.does("PING", "+PONG")
	if second := dial(t, f); second.lines(1) != "-ERR max number of clients reached" || !second.ended() {
		t.Error("a client too many is not refused")
	}
	first.does("PING", "+PONG")
}

// pieces is a client whose bytes arrive in pieces. It notes which deadline each read has.
type pieces struct {
	net.Conn
	data     []string
	deadline time.Time
	reads    []time.Time
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.reads = append(p.reads, p.deadline); len(p.data) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.data[0])
	p.data = p.data[1:]
	return n, nil
}

func (p *pieces) Write(b []byte) (int, error)       { return len(b), nil }
func (p *pieces) SetReadDeadline(t time.Time) error { p.deadline = t; return nil }
func (p *pieces) SetWriteDeadline(time.Time) error  { return nil }
func (p *pieces) RemoteAddr() net.Addr              { return &net.TCPAddr{} }

// TestUsersAppear: an idle client gets a deadline when a new policy has users, and none by other reloads.
func TestUsersAppear(t *testing.T) {
	f := serve(t, "", "")
	p := &pieces{}
	c := f.newConn(p)
	f.mu.Lock()
	f.conns[c] = struct{}{}
	f.mu.Unlock()
	if reload(t, f, "", someLimits); !p.deadline.IsZero() {
		t.Error("a reload without users disconnects idle clients")
	}
	if reload(t, f, ", users: users.acl", ""); p.deadline.IsZero() {
		t.Error("a client that does not authenticate stays for as long as it likes")
	}
	f.mu.Lock()
	delete(f.conns, c)
	f.mu.Unlock()
}

// TestDeadlineOfEachCommand: the rest of a command has its time from its own beginning. A client whose
// reads all end inside a command lives on, and one that sends a command byte by byte gets no more time.
func TestDeadlineOfEachCommand(t *testing.T) {
	p := &pieces{data: []string{"PING\r\nPI", "NG\r\nPI", "N", "G\r\n"}}
	serve(t, "", "").newConn(p).serve()
	if len(p.reads) != 5 {
		t.Fatalf("%d reads, want 5", len(p.reads))
	}
	first, second, third := p.reads[1], p.reads[2], p.reads[3]
	if !p.reads[0].IsZero() || first.IsZero() || !p.reads[4].IsZero() {
		t.Errorf("a deadline without a command, or none for the rest of one: %v", p.reads)
	}
	if !second.After(first) {
		t.Error("the second command has the deadline of the first")
	}
	if !third.Equal(second) {
		t.Error("each piece of a command gives it more time")
	}
}
