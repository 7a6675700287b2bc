package sim

import (
	"io"
	"strings"
)

// lineReader splits an input into lines. It reads in blocks; each block is one string, and its
// lines are substrings.
type lineReader struct {
	src     io.Reader
	longest int
	buf     []byte
	block   string // read, but not returned yet
	err     error  // of the last read, returned when block is empty
}

const blockSize = 64 << 10

func newLineReader(src io.Reader, longest int) *lineReader {
	return &lineReader{src: src, longest: longest, buf: make([]byte, blockSize)}
}

// next returns the next line without its line end. Of a line that is too long it returns the start.
func (l *lineReader) next() (line string, tooLong bool, err error) {
	end := strings.IndexByte(l.block, '\n')
	if end < 0 {
		return l.readAcrossBlocks()
	}
	line, l.block = l.block[:end], l.block[end+1:]
	line, tooLong = l.withoutLineEnd(line)
	return line, tooLong, nil
}

// readAcrossBlocks is next for a line that does not end in the block.
func (l *lineReader) readAcrossBlocks() (line string, tooLong bool, err error) {
	long := []byte(l.block)
	l.block = ""
	for l.err == nil {
		var n int
		n, l.err = l.src.Read(l.buf)
		block := string(l.buf[:n])
		end := strings.IndexByte(block, '\n')
		if end >= 0 {
			l.block = block[end+1:]
			block = block[:end]
		}
		// one more for a carriage return; the rest of a long line is dropped
		if len(long) <= l.longest+1 {
			long = append(long, block...)
		}
		if end >= 0 {
			line, tooLong = l.withoutLineEnd(string(long))
			return line, tooLong, nil
		}
	}
	if l.err == io.EOF && len(long) > 0 { // the last line, without a line end
		line, tooLong = l.withoutLineEnd(string(long))
		return line, tooLong, nil
	}
	return "", false, l.err
}

func (l *lineReader) withoutLineEnd(line string) (string, bool) {
	line = strings.TrimSuffix(line, "\r")
	if len(line) > l.longest {
		return line[:l.longest], true
	}
	return line, false
}
