// Package routers shows how to limit the handlers of common routers by one weirhttp middleware. It
// takes and returns http.Handlers, so most routers take it as it is; the others have an adapter.
package routers

import (
	"context"
	"io"
	"net/http"

	"connectrpc.com/connect"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/labstack/echo/v4"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Middleware is what weirhttp.Limit and weirhttp.Policy return.
type Middleware = func(http.Handler) http.Handler

func hello(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }

// NetHTTP limits one route of a net/http server.
func NetHTTP(limit Middleware) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /limited", limit(http.HandlerFunc(hello)))
	mux.HandleFunc("GET /free", hello)
	return mux
}

// Chi limits a group of routes of chi.
func Chi(limit Middleware) http.Handler {
	r := chi.NewRouter()
	r.Group(func(r chi.Router) {
		r.Use(limit)
		r.Get("/limited", hello)
	})
	r.Get("/free", hello)
	return r
}

// Gin limits one route of gin.
func Gin(limit Middleware) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.GET("/limited", forGin(limit), gin.WrapF(hello))
	r.GET("/free", gin.WrapF(hello))
	return r
}

// forGin makes a gin middleware. gin goes on with the chain by itself, so the middleware aborts the
// chain for a refused request.
func forGin(limit Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		admitted := false
		limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			admitted = true
			c.Request = r
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		if !admitted {
			c.Abort()
		}
	}
}

// Echo limits one route of echo, which has an adapter of its own.
func Echo(limit Middleware) http.Handler {
	e := echo.New()
	e.GET("/limited", echo.WrapHandler(http.HandlerFunc(hello)), echo.WrapMiddleware(limit))
	e.GET("/free", echo.WrapHandler(http.HandlerFunc(hello)))
	return e
}

// Fiber limits one route of fiber, which is not built on net/http: its adaptor converts each request.
// A place of weirhttp.InFlight ends with the adapted handler, before fiber's own: limit what is in
// flight in front of fiber.
func Fiber(limit Middleware) *fiber.App {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Get("/limited", adaptor.HTTPMiddleware(limit), func(c *fiber.Ctx) error { return c.SendString("hello") })
	app.Get("/free", func(c *fiber.Ctx) error { return c.SendString("hello") })
	return app
}

// Connect limits an RPC of connect. Its client gets the code unavailable, which connect has for 429.
func Connect(limit Middleware) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/limited", limit(connect.NewUnaryHandler("/limited",
		func(context.Context, *connect.Request[wrapperspb.StringValue]) (*connect.Response[wrapperspb.StringValue], error) {
			return connect.NewResponse(wrapperspb.String("hello")), nil
		})))
	return mux
}
