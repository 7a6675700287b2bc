package room

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
)

// ticket is what a visitor carries: who it is, and what the line is to be told if it has forgotten. It is signed, and not secret to its bearer.
type ticket struct {
	held     Held
	kept     bool   // made while the line did not answer
	id       string // of 22 letters, digits, - and _
	place    int64  // of the arrival, in microseconds
	end      int64  // of the session; 0 for one who waits
	era      int64
	made     int64 // in microseconds, by the clock of the gateway
	expires  int64
	first    uint32 // how many were ahead at first
	calmTill int64  // until when an admitted ticket is good without asking the line
}

// A ticket is written as base64url of: version, flags, id, numbers, the client's mark, and the signature of all that and of the room's name.
const (
	ticketVersion = 1
	idBytes       = 16
	markBytes     = 8
	ticketBytes   = 2 + idBytes + 6*8 + 4 + markBytes
)

// Why a ticket is not good.
var (
	errForged  = errors.New("the ticket was not signed by this room")
	errClient  = errors.New("the ticket is another client's")
	errExpired = errors.New("the ticket is too old")
)

var plain = base64.RawURLEncoding.Strict()

// newID makes the name of a visitor, which nobody can guess.
func newID() string {
	var id [idBytes]byte
	rand.Read(id[:]) // never fails
	return plain.EncodeToString(id[:])
}

// signer signs the tickets of a room.
type signer struct {
	room string
	Secrets
}

// sum is a signature, or a mark: purpose keeps them apart.
func (s signer) sum(key []byte, purpose byte, data ...[]byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte{ticketVersion, purpose, byte(len(s.room))})
	m.Write([]byte(s.room))
	for _, d := range data {
		m.Write(d)
	}
	return m.Sum(nil)
}

func (s signer) mark(key []byte, client string) []byte {
	return s.sum(key, 'c', []byte(client))[:markBytes]
}

// sign writes a ticket for a client.
func (s signer) sign(t ticket, client string) string {
	b := make([]byte, 0, ticketBytes+sha256.Size)
	flags := byte(t.held)
	if t.kept {
		flags |= 0x80
	}
	b = append(b, ticketVersion, flags)
	id, err := plain.DecodeString(t.id)
	if err != nil || len(id) != idBytes {
		return "" // ids are ours
	}
	b = append(b, id...)
	for _, n := range []int64{t.place, t.end, t.era, t.made, t.expires, t.calmTill} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	b = binary.BigEndian.AppendUint32(b, t.first)
	b = append(b, s.mark(s.keys[0], client)...)
	return plain.EncodeToString(append(b, s.sum(s.keys[0], 't', b)...))
}

// verify reads a ticket. The signature and the mark are compared in constant time.
func (s signer) verify(text, client string, now int64) (ticket, error) {
	if len(text) != plain.EncodedLen(ticketBytes+sha256.Size) { // the decoder would pass over line ends
		return ticket{}, errForged
	}
	b, err := plain.DecodeString(text)
	if err != nil || len(b) != ticketBytes+sha256.Size || b[0] != ticketVersion {
		return ticket{}, errForged
	}
	b, sum := b[:ticketBytes], b[ticketBytes:]
	for _, key := range s.keys {
		if !hmac.Equal(sum, s.sum(key, 't', b)) {
			continue
		}
		if !hmac.Equal(b[ticketBytes-markBytes:], s.mark(key, client)) {
			return ticket{}, errClient
		}
		t := readTicket(b)
		if t.held != InLine && t.held != Admitted {
			return ticket{}, errForged
		}
		if now >= t.expires {
			return ticket{}, errExpired
		}
		return t, nil
	}
	return ticket{}, errForged
}

// readTicket reads what was signed.
func readTicket(b []byte) (t ticket) {
	t.held, t.kept = Held(b[1]&0x7f), b[1]&0x80 != 0
	t.id = plain.EncodeToString(b[2 : 2+idBytes])
	at := 2 + idBytes
	for _, n := range []*int64{&t.place, &t.end, &t.era, &t.made, &t.expires, &t.calmTill} {
		*n = int64(binary.BigEndian.Uint64(b[at:]))
		at += 8
	}
	t.first = binary.BigEndian.Uint32(b[at:])
	return t
}
