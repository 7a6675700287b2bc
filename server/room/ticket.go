package room

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
)

// ticket is what a visitor carries: the visitor's id, and what restores the place if the queue has
// lost its state. It is signed, and not secret to its bearer.
type ticket struct {
	state        TicketState
	provisional  bool   // made while the queue was unavailable
	id           string // 22 letters, digits, - and _
	place        int64  // the time of arrival, in microseconds
	sessionEnd   int64  // 0 for a waiting visitor
	started      int64
	made         int64 // in microseconds, on the gateway's clock
	expires      int64
	firstAhead   uint32 // visitors ahead when this one joined
	trustedUntil int64  // until then, a ticket of a visitor inside is valid without a poll
}

// A ticket is encoded as base64url of: version, flags, id, times, a hash of the client it is bound
// to, and the signature of all that with the room's name.
const (
	ticketVersion = 1
	idBytes       = 16
	markBytes     = 8
	ticketBytes   = 2 + idBytes + 6*8 + 4 + markBytes
)

// Why a ticket is invalid.
var (
	errForged  = errors.New("the ticket was not signed by this room")
	errClient  = errors.New("the ticket is bound to another client")
	errExpired = errors.New("the ticket has expired")
)

var ticketEncoding = base64.RawURLEncoding.Strict()

// newID makes an unguessable visitor id.
func newID() string {
	var id [idBytes]byte
	rand.Read(id[:]) // never fails
	return ticketEncoding.EncodeToString(id[:])
}

// signer signs the tickets of a room.
type signer struct {
	room string
	Secrets
}

// sum is a signature, a client mark or a lot; purpose separates them.
func (s signer) sum(key []byte, purpose byte, data ...[]byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte{ticketVersion, purpose, byte(len(s.room))})
	m.Write([]byte(s.room))
	for _, d := range data {
		m.Write(d)
	}
	return m.Sum(nil)
}

func (s signer) clientMark(key []byte, client string) []byte {
	return s.sum(key, 'c', []byte(client))[:markBytes]
}

// lot is the lot of a visitor, from 1 to MostLot. Nobody can compute it from the id without the secret.
func (s signer) lot(id string) int64 {
	return 1 + int64(binary.BigEndian.Uint64(s.sum(s.keys[0], 'l', []byte(id)))%uint64(MostLot))
}

// sign encodes and signs a ticket for a client.
func (s signer) sign(t ticket, client string) string {
	b := make([]byte, 0, ticketBytes+sha256.Size)
	flags := byte(t.state)
	if t.provisional {
		flags |= 0x80
	}
	b = append(b, ticketVersion, flags)
	id, err := ticketEncoding.DecodeString(t.id)
	if err != nil || len(id) != idBytes {
		return "" // ids are made by newID
	}
	b = append(b, id...)
	for _, n := range []int64{t.place, t.sessionEnd, t.started, t.made, t.expires, t.trustedUntil} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	b = binary.BigEndian.AppendUint32(b, t.firstAhead)
	b = append(b, s.clientMark(s.keys[0], client)...)
	return ticketEncoding.EncodeToString(append(b, s.sum(s.keys[0], 't', b)...))
}

// verify decodes a ticket. It compares the signature and the client mark in constant time.
func (s signer) verify(text, client string, now int64) (ticket, error) {
	// the decoder skips line ends
	if len(text) != ticketEncoding.EncodedLen(ticketBytes+sha256.Size) {
		return ticket{}, errForged
	}
	b, err := ticketEncoding.DecodeString(text)
	if err != nil || len(b) != ticketBytes+sha256.Size || b[0] != ticketVersion {
		return ticket{}, errForged
	}
	b, sum := b[:ticketBytes], b[ticketBytes:]
	for _, key := range s.keys {
		if !hmac.Equal(sum, s.sum(key, 't', b)) {
			continue
		}
		if !hmac.Equal(b[ticketBytes-markBytes:], s.clientMark(key, client)) {
			return ticket{}, errClient
		}
		t := decodeTicket(b)
		if t.state != WaitingTicket && t.state != InsideTicket && t.state != firstTicket {
			return ticket{}, errForged
		}
		if now >= t.expires {
			return ticket{}, errExpired
		}
		return t, nil
	}
	return ticket{}, errForged
}

// decodeTicket decodes the signed bytes.
func decodeTicket(b []byte) (t ticket) {
	t.state, t.provisional = TicketState(b[1]&0x7f), b[1]&0x80 != 0
	t.id = ticketEncoding.EncodeToString(b[2 : 2+idBytes])
	at := 2 + idBytes
	for _, n := range []*int64{&t.place, &t.sessionEnd, &t.started, &t.made, &t.expires, &t.trustedUntil} {
		*n = int64(binary.BigEndian.Uint64(b[at:]))
		at += 8
	}
	t.firstAhead = binary.BigEndian.Uint32(b[at:])
	return t
}
