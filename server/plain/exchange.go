package plain

import (
	"context"
	"net/http"
	"net/url"
	"sync"
)

// fewFields is how many header fields there is room for without another allocation.
const fewFields = 8

// exchanged is all that one request needs, in one allocation.
type exchanged struct {
	ctx      requestContext
	request  http.Request
	response response
	body     body
	url      url.URL
	values   [fewFields]string // of the request's header fields
}

// exchanges are used again after Reuse. Each has empty headers, or none.
var exchanges = sync.Pool{New: func() any { return new(exchanged) }}

// Reuse says that nothing has kept the request that a context belongs to, its header, its ResponseWriter or the
// header of that, and that nothing is going to use them. They are used again for another request when the handler
// has returned; texts are not. It saves most of the memory that a request takes, and changes nothing else.
func Reuse(ctx context.Context) {
	if c, ok := ctx.Value(requestKey{}).(*requestContext); ok {
		c.reuse = true
	}
}

// putBack has the exchange used again, unless contexts were derived from its own.
func (x *exchanged) putBack() {
	if x.ctx.inner != nil {
		return
	}
	asked, answered := x.request.Header, x.response.header
	if len(asked) > fewFields || len(answered) > fewFields {
		return // clearing them takes as long as new ones
	}
	clear(asked)
	clear(answered)
	*x = exchanged{}
	x.request.Header, x.response.header = asked, answered
	exchanges.Put(x)
}
