package edge

import (
	wire "encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Opcodes of WebSocket (RFC 6455).
const (
	wsContinuation = 0
	wsText         = 1
	wsBinary       = 2
	wsClose        = 8
	wsPing         = 9
	wsPong         = 10
)

// A wsFrame is a frame of WebSocket, allowed or not.
type wsFrame struct {
	op       byte
	more     bool // FIN is not set
	reserved byte // RSV1 to RSV3: 0 to 7
	bare     bool // it is not masked, as clients must
	mask     [4]byte
	long     int // the length takes so many bytes more than it has to: 2, 8, or 0 for none
	payload  string
}

// bytes is the frame as it is sent.
func (f wsFrame) bytes() string {
	head := []byte{f.op | f.reserved<<4, 0}
	if !f.more {
		head[0] |= 0x80
	}
	n := len(f.payload)
	switch {
	case f.long == 8 || n > 65535:
		head[1] = 127
		head = wire.BigEndian.AppendUint64(head, uint64(n))
	case f.long == 2 || n > 125:
		head[1] = 126
		head = wire.BigEndian.AppendUint16(head, uint16(n))
	default:
		head[1] = byte(n)
	}
	if f.bare {
		return string(head) + f.payload
	}
	head[1] |= 0x80
	head = append(head, f.mask[:]...)
	masked := []byte(f.payload)
	for i := range masked {
		masked[i] ^= f.mask[i%4]
	}
	return string(append(head, masked...))
}

// usual is a mask as clients choose it.
var usual = [4]byte{0x37, 0xfa, 0x21, 0x3d}

func wsMessage(op byte, payload string) wsFrame {
	return wsFrame{op: op, mask: usual, payload: payload}
}

// wsClosing is a Close frame with a code and a reason.
func wsClosing(code uint16, reason string) wsFrame {
	return wsMessage(wsClose, string(wire.BigEndian.AppendUint16(nil, code))+reason)
}

// A wsCase is what a client sends after its request for an upgrade. Then it closes its sending side.
type wsCase struct{ name, sent string }

// lookalikes are payloads that HTTP would read as lines, headers, requests or responses.
var lookalikes = []string{
	"\n", "\r\n", "\r\n\r\n", "\n\n", "a\nb", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET / HTTP/1.1\n\n", "HTTP/1.1 ",
	"HTTP/1.1 101 Switching Protocols\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "0\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", smuggled,
}

// wsCorpus are conversations that RFC 6455 allows, and those that it forbids.
func wsCorpus() (all []wsCase) {
	add := func(name string, frames ...wsFrame) {
		var b strings.Builder
		for _, f := range frames {
			b.WriteString(f.bytes())
		}
		all = append(all, wsCase{name, b.String()})
	}
	bye := wsClosing(1000, "bye")
	text := func(s string) wsFrame { return wsMessage(wsText, s) }
	part := func(op byte, s string, more bool) wsFrame {
		return wsFrame{op: op, mask: usual, payload: s, more: more}
	}

	add("nothing")
	for _, n := range []int{0, 1, 124, 125, 126, 127, 65535, 65536, 100_000} {
		add(fmt.Sprint("text of ", n), text(strings.Repeat("x", n)), bye)
		add(fmt.Sprint("binary of ", n), wsMessage(wsBinary, strings.Repeat("\xff", n)), bye)
		add(fmt.Sprint("not masked, of ", n), wsFrame{op: wsText, bare: true, payload: strings.Repeat("x", n)})
	}
	for _, long := range []int{2, 8} {
		add(fmt.Sprint("a length in more bytes than it needs: ", long), wsFrame{op: wsText, mask: usual, long: long, payload: "hello"}, bye)
	}
	for i, p := range lookalikes {
		add(fmt.Sprint("masked with zeros, like HTTP ", i), wsFrame{op: wsText, payload: p}, bye)
		add(fmt.Sprint("masked, like HTTP ", i), text(p), bye)
		add(fmt.Sprint("not masked, like HTTP ", i), wsFrame{op: wsBinary, bare: true, payload: p})
		all = append(all, wsCase{fmt.Sprint("no frame, but HTTP ", i), p})
	}
	add("a mask of line breaks", wsFrame{op: wsText, mask: [4]byte{'\r', '\n', '\r', '\n'}, payload: "\x00\x00\x00\x00hello"}, bye)
	add("every byte", wsMessage(wsBinary, everyByte()), bye)

	add("two fragments", part(wsText, "hel", true), part(wsContinuation, "lo", false), bye)
	add("empty fragments", part(wsBinary, "", true), part(wsContinuation, "", true), part(wsContinuation, "", false), bye)
	hundred := []wsFrame{part(wsText, "a", true)}
	for range 98 {
		hundred = append(hundred, part(wsContinuation, "\n", true))
	}
	add("a hundred fragments", append(hundred, part(wsContinuation, "z", false), bye)...)
	add("control frames between fragments", part(wsText, "hel", true), wsMessage(wsPing, "a"), part(wsContinuation, "l", true), wsMessage(wsPong, "b"),
		part(wsContinuation, "o", false), bye)
	add("a Close between fragments", part(wsText, "hel", true), bye, part(wsContinuation, "lo", false))
	add("a new message between fragments", part(wsText, "hel", true), text("x"))
	add("a continuation of nothing", part(wsContinuation, "x", false))
	add("a character in two fragments", part(wsText, "\xe2\x82", true), part(wsContinuation, "\xac", false), bye)

	add("pings", wsMessage(wsPing, ""), wsMessage(wsPing, strings.Repeat("p", 125)), wsMessage(wsPong, "unsolicited"), bye)
	add("a ping that is too long", wsMessage(wsPing, strings.Repeat("p", 126)))
	add("a ping in fragments", part(wsPing, "x", true))
	add("two hundred pings", append(slices.Repeat([]wsFrame{wsMessage(wsPing, "again")}, 200), bye)...)
	for reserved := byte(1); reserved < 8; reserved++ {
		add(fmt.Sprint("reserved bits ", reserved), wsFrame{op: wsText, reserved: reserved, mask: usual, payload: "x"})
	}
	for _, op := range []byte{3, 4, 5, 6, 7, 11, 12, 13, 14, 15} {
		add(fmt.Sprint("opcode ", op), wsMessage(op, "x"))
	}
	for _, s := range []string{"\xff", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "ok\x80ok"} {
		add(fmt.Sprintf("no UTF-8: %x", s), text(s), bye)
		add(fmt.Sprintf("no UTF-8 in fragments: %x", s), part(wsText, s[:1], true), part(wsContinuation, s[1:], false), bye)
	}
	for _, code := range []uint16{0, 999, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1011, 1014, 1015, 1016, 2999, 3000, 4999, 5000, 65535} {
		add(fmt.Sprint("closed with ", code), text("x"), wsClosing(code, ""))
	}
	add("a Close without a code", wsMessage(wsClose, ""))
	add("a Close with half a code", wsMessage(wsClose, "\x03"))
	add("a Close with a long reason", wsClosing(1000, strings.Repeat("r", 123)))
	add("a Close with too long a reason", wsClosing(1000, strings.Repeat("r", 124)))
	add("a Close whose reason is no UTF-8", wsClosing(1000, "\xff"))
	add("messages after a Close", bye, text("x"), wsMessage(wsPing, "y"))

	whole := text(strings.Repeat("y", 300)).bytes()
	for _, n := range []int{1, 2, 3, 4, 7, 8, 9, len(whole) - 1} {
		all = append(all, wsCase{fmt.Sprint("cut off after ", n), text("x").bytes() + whole[:n]})
	}
	all = append(all, wsCase{"a length with the highest bit", "\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff" + "mask" + "x"})
	return all
}

func everyByte() string {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return string(b)
}

// anyConversation are frames in which anything may be wrong.
func anyConversation(rng *rand.Rand) string {
	var b strings.Builder
	for range 1 + rng.IntN(8) {
		f := wsFrame{op: []byte{0, 1, 1, 2, 2, 8, 9, 10, byte(rng.IntN(16))}[rng.IntN(9)], more: rng.IntN(4) == 0, bare: rng.IntN(8) == 0}
		if rng.IntN(8) == 0 {
			f.reserved = byte(rng.IntN(8))
		}
		if rng.IntN(2) == 0 {
			wire.BigEndian.PutUint32(f.mask[:], rng.Uint32())
		}
		switch rng.IntN(4) {
		case 0:
			f.payload = pick(rng, lookalikes...)
		case 1:
			f.payload = everyByte()[rng.IntN(256):]
		default:
			f.payload = strings.Repeat("x", []int{65535, 65536, 0, 1, 125, 126, rng.IntN(3000)}[min(rng.IntN(60), 6)])
		}
		if rng.IntN(10) == 0 {
			f.long = 2 + 6*rng.IntN(2)
		}
		if f.long == 2 && len(f.payload) > 65535 {
			f.long = 0
		}
		b.WriteString(f.bytes())
	}
	sent := b.String()
	if rng.IntN(5) == 0 {
		sent = sent[:rng.IntN(len(sent)+1)]
	}
	return sent
}
