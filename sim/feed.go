package sim

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
)

// A batch is a block with the requests that it has.
type batch struct {
	block
	format *Format
	input  int32         // the index of its input
	number int64         // of the block in its input
	ready  chan struct{} // one value when the block is parsed
	items  []item
	latest position // of the items
	late   bool     // some item comes after a later one
	from   int      // the first of them that was not used yet
	held   int      // bytes of the blocks that their texts are in, about
	sorted bool     // made by order.sort
	lines  int64
	bad    int64
	first  []BadLine // the first unreadable lines
	err    error     // after the last block, what the input ended with if that was not its end
}

// A feed reads inputs and parses their lines, ahead of what uses them.
type feed struct {
	o      *Options
	layout *layout
	jobs   chan *batch
	spare  sync.Pool
	inputs []*inputFeed
	parsed sync.WaitGroup
	read   sync.WaitGroup
	cancel context.CancelFunc
	ctx    context.Context

	memory *memory
	spent  func(buf []byte) // called with memory whose texts nobody needs after release; nil to call it never
}

// inputFeed is the feed of one input: its batches in order.
type inputFeed struct {
	name    string
	index   int32
	batches chan *batch
	lines   int64   // in the batches that were taken
	current *batch  // being used by a merge
	next    int     // the next item of current
	ended   bool    // for a merge
	format  *Format // once the first batch was taken
	err     error
}

// newFeed begins to read inputs.
func newFeed(ctx context.Context, o *Options, l *layout, inputs []Input, m *memory) *feed {
	f := &feed{o: o, layout: l, memory: m, jobs: make(chan *batch)}
	f.ctx, f.cancel = context.WithCancel(ctx)
	f.spare.New = func() any { return &batch{ready: make(chan struct{}, 1)} }
	workers := runtime.GOMAXPROCS(0)
	ahead := workers + 1
	if len(inputs) > 1 {
		ahead = 1 // one of the others may be long before this one
	}
	for range workers {
		f.parsed.Go(f.parse)
	}
	for i, in := range inputs {
		each := &inputFeed{name: in.Name, index: int32(i), batches: make(chan *batch, ahead)}
		f.inputs = append(f.inputs, each)
		f.read.Go(func() { f.readInput(in, each) })
	}
	return f
}

// close ends the feed. It waits for a Read of an input, unless the context has ended: some never return.
func (f *feed) close() {
	ended := f.ctx.Err() != nil
	f.cancel()
	f.parsed.Wait()
	if !ended {
		f.read.Wait()
	}
}

// readInput reads an input to its end.
func (f *feed) readInput(in Input, to *inputFeed) {
	defer close(to.batches)
	if err := f.readBlocks(in, to); err != nil {
		b := &batch{err: err, ready: make(chan struct{}, 1)}
		b.ready <- struct{}{}
		select {
		case to.batches <- b:
		case <-f.ctx.Done():
		}
	}
}

func (f *feed) readBlocks(in Input, to *inputFeed) error {
	src, done, err := f.plain(in.R)
	if err != nil {
		return err
	}
	defer done()
	blocks := blockReader{src: src, longest: f.o.MaxLine, memory: f.memory}
	format := f.o.Format
	for number := int64(0); ; number++ {
		text, err := blocks.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if format == nil && !text.tooLong {
			format = detect(sampleOf(text.text))
		}
		b := f.spare.Get().(*batch)
		b.block, b.format, b.held = text, format, len(text.text)
		b.input, b.number = to.index, number
		select {
		case to.batches <- b:
		case <-f.ctx.Done():
			return nil
		}
		select {
		case f.jobs <- b:
		case <-f.ctx.Done():
			return nil
		}
	}
}

// sampleOf returns the first lines of a block that are not empty.
func sampleOf(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			lines = append(lines, line)
		}
		if len(lines) == 100 {
			break
		}
	}
	return lines
}

// plain returns what a compressed input has in it.
func (f *feed) plain(r io.Reader) (plain io.Reader, done func(), err error) {
	raw := bufio.NewReaderSize(r, blockSize)
	magic, _ := raw.Peek(4)
	switch {
	case len(magic) >= 2 && magic[0] == 0x1f && magic[1] == 0x8b:
		z, err := gzip.NewReader(raw)
		if err != nil {
			return nil, nil, fmt.Errorf("the file starts like gzip, but is not valid gzip: %w", err)
		}
		return z, func() { z.Close() }, nil
	case string(magic) == "\x28\xb5\x2f\xfd":
		if f.o.Zstd == nil {
			return nil, nil, errors.New("the file is compressed with zstd, which this program cannot read: decompress it first")
		}
		z, err := f.o.Zstd(raw)
		if err != nil {
			return nil, nil, err
		}
		return z, func() { z.Close() }, nil
	}
	return raw, func() {}, nil
}

// parse parses blocks until the feed ends.
func (f *feed) parse() {
	p := parser{headers: f.layout.headers(), agents: f.layout.profiles, responses: f.layout.responses, estimate: f.o.EstimateField, cost: f.o.CostField}
	for {
		select {
		case b := <-f.jobs:
			p.format = b.format
			b.parse(&p, f.o.MaxLine)
			b.ready <- struct{}{}
		case <-f.ctx.Done():
			return
		}
	}
}

// parse parses the lines of a batch's block.
func (b *batch) parse(p *parser, longest int) {
	for rest := b.text; rest != ""; {
		line := rest
		if end := strings.IndexByte(rest, '\n'); end >= 0 {
			line, rest = rest[:end], rest[end+1:]
		} else {
			rest = ""
		}
		b.lines++
		line = strings.TrimSuffix(line, "\r")
		if len(line) > longest || b.tooLong {
			b.unparsed(line[:min(len(line), longest)], fmt.Errorf("the line is longer than %d bytes", longest))
			continue
		}
		if len(b.items) == cap(b.items) {
			b.items = append(b.items, item{})[:len(b.items)]
		}
		it := &b.items[:len(b.items)+1][len(b.items)]
		if err := p.parse(line, it); err != nil {
			b.unparsed(line, err)
			continue
		}
		it.input, it.place = b.input, b.number<<lineBits|b.lines
		b.items = b.items[:len(b.items)+1]
		b.inOrder(it)
	}
}

// inOrder notes whether an item that was added is in order.
func (b *batch) inOrder(it *item) {
	if p := it.position(); len(b.items) == 1 || p.compare(b.latest) > 0 {
		b.latest = p
	} else {
		b.late = true
	}
}

// unparsed counts an unreadable line.
func (b *batch) unparsed(line string, why error) {
	b.bad++
	if len(b.first) < showUnparsed {
		b.first = append(b.first, BadLine{Line: b.lines, Why: why.Error(), Text: startOf(line)})
	}
}

// take returns the next batch of an input; nil at its end.
func (f *feed) take(in *inputFeed, report *Reading) (*batch, error) {
	var b *batch
	select {
	case b = <-in.batches:
	case <-f.ctx.Done():
		return nil, f.ctx.Err()
	}
	if b == nil {
		return nil, f.ctx.Err()
	}
	select {
	case <-b.ready:
	case <-f.ctx.Done():
		return nil, f.ctx.Err()
	}
	if b.err != nil {
		in.err = fmt.Errorf("%s: %w", in.name, b.err)
		return nil, nil
	}
	if in.format == nil {
		in.format = b.format
	}
	report.add(in, b)
	in.lines += b.lines
	return b, nil
}

// release gives back a batch whose items are used no more.
func (f *feed) release(b *batch) {
	if f.spent != nil && b.buf != nil {
		f.spent(b.buf)
	} else {
		clear(b.items) // the blocks of their strings would be kept
	}
	*b = batch{ready: b.ready, items: b.items[:0]}
	f.spare.Put(b)
}

// err returns what went wrong with the inputs.
func (f *feed) err() error {
	var errs []error
	for _, in := range f.inputs {
		errs = append(errs, in.err)
	}
	return errors.Join(errs...)
}
