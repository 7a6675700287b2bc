package resp

import (
	"maps"
	"slices"
	"strings"

	"github.com/weirflow/weir/server/resp/wire"
)

// commands returns the commands by their names in lower case.
func commands() map[string]*command {
	of := []string{"loading", "stale", "fast"} // commands of the connection
	byName := map[string]*command{}
	for _, c := range []command{
		{name: "cl.throttle", arity: -1, flags: []string{"write", "fast"}, key: 1, run: (*conn).throttle, throttles: true, summary: "Limits a key by redis-cell's rule: key max_burst count period [quantity]"},
		{name: "auth", arity: -2, flags: of, anonymous: true, run: (*conn).auth, summary: "Authenticates the connection"},
		{name: "client", arity: -2, flags: of, run: (*conn).client, summary: "Says or sets something of the connection"},
		{name: "cluster", arity: -2, flags: of, run: (*conn).cluster, summary: "Says that this is no cluster"},
		{name: "command", arity: -1, flags: of, run: (*conn).command, summary: "Describes the commands"},
		{name: "config", arity: -3, flags: of, run: (*conn).config, summary: "Returns settings, with GET"},
		{name: "echo", arity: 2, flags: of, run: (*conn).echo, summary: "Returns its argument"},
		{name: "hello", arity: -1, flags: of, anonymous: true, run: (*conn).hello, summary: "Chooses RESP2 or RESP3"},
		{name: "info", arity: -1, flags: of, run: (*conn).info, summary: "Returns figures about the server"},
		{name: "ping", arity: -1, flags: of, run: (*conn).ping, summary: "Returns PONG"},
		{name: "quit", arity: -1, flags: of, anonymous: true, summary: "Ends the connection"},
		{name: "reset", arity: 1, flags: of, anonymous: true, run: (*conn).resetCommand, summary: "Sets the connection as it was in the beginning"},
		{name: "select", arity: 2, flags: of, run: (*conn).selectCommand, summary: "Selects the only database, 0"},
		{name: "weir.cancel", arity: 2, flags: []string{"write", "fast"}, run: (*conn).cancel, summary: "Gives a reservation back: id"},
		{name: "weir.del", arity: 2, flags: []string{"write", "admin"}, permitted: true, run: (*conn).deleteNamed, summary: "Deletes a named limit; its counts in a store stay until they expire: @name"},
		{name: "weir.enter", arity: -2, flags: []string{"write", "fast"}, run: (*conn).enter, summary: "Decides about a request by the routes of the policy, and keeps its places at limits of requests in flight: path [METHOD m] [HOST h] [CLIENT address] [HEADER name value] [LENGTH n] [HOLD ms]"},
		{name: "weir.init", arity: -4, flags: []string{"write", "admin"}, permitted: true, run: (*conn).initNamed, summary: "Creates or changes a named limit: @name algorithm field=value... [PARTS n]"},
		{name: "weir.leave", arity: -2, flags: []string{"write", "fast"}, run: (*conn).leavePlace, summary: "Gives back the places of a request that has ended: place [ok|ignored|dropped]"},
		{name: "weir.peek", arity: -3, flags: []string{"readonly", "fast"}, run: (*conn).peek, summary: "Decides by limits of the policy, and charges nothing: limit numparts part..."},
		{name: "weir.reserve", arity: -3, flags: []string{"write", "fast"}, run: (*conn).reserve, summary: "Charges limits of the policy until the true cost is known: limit numparts part... [COST n] [WITHIN ms] [KEEP ms]"},
		{name: "weir.reset", arity: -3, flags: []string{"write", "admin", "fast"}, permitted: true, run: (*conn).resetKey, summary: "Makes a key start over without counts: limit numparts part..."},
		{name: "weir.settle", arity: -3, flags: []string{"write", "fast"}, run: (*conn).settle, summary: "Replaces a reservation by its true cost: id cost..."},
		{name: "weir.take", arity: -3, flags: []string{"write", "fast"}, run: (*conn).take, summary: "Charges limits of the policy, all or none: limit numparts part... [COST n] [PLAN plan] [AND limit numparts part...]"},
	} {
		byName[c.name] = &c
	}
	return byName
}

// sorted returns the commands in the order of their names.
func (f *Face) sorted() []*command {
	return slices.SortedFunc(maps.Values(f.commands), func(a, b *command) int { return strings.Compare(a.name, b.name) })
}

// command is COMMAND, alone or with COUNT, DOCS, INFO or LIST.
func (c *conn) command(args [][]byte) {
	r, sorted := &c.reply, c.face.sorted()
	word := ""
	if len(args) > 1 {
		word = strings.ToLower(string(args[1]))
	}
	switch word {
	case "":
		r.Array(len(sorted))
		for _, cmd := range sorted {
			cmd.show(r)
		}
	case "count":
		r.Int(int64(len(sorted)))
	case "list":
		r.Array(len(sorted))
		for _, cmd := range sorted {
			r.Text(cmd.name)
		}
	case "info":
		all := c.face.commandsOf(args[2:])
		r.Array(len(all))
		for _, cmd := range all {
			if cmd == nil {
				r.NullArray()
				continue
			}
			cmd.show(r)
		}
	case "docs":
		all := slices.DeleteFunc(c.face.commandsOf(args[2:]), func(cmd *command) bool { return cmd == nil })
		r.Map(len(all))
		for _, cmd := range all {
			cmd.document(r)
		}
	default:
		r.Error("ERR unknown subcommand '" + visible(args[1]) + "'. Try COMMAND, or COMMAND COUNT, DOCS, INFO or LIST.")
	}
}

// commandsOf returns the commands of some names, nil for unknown ones; all without names.
func (f *Face) commandsOf(names [][]byte) (all []*command) {
	if len(names) == 0 {
		return f.sorted()
	}
	for _, name := range names {
		all = append(all, f.find(name))
	}
	return all
}

// show writes a command as COMMAND shows it.
func (cmd *command) show(r *wire.Reply) {
	r.Array(7)
	r.Text(cmd.name)
	r.Int(int64(cmd.arity))
	r.Set(len(cmd.flags))
	for _, f := range cmd.flags {
		r.Simple(f)
	}
	r.Int(int64(cmd.key))
	r.Int(int64(cmd.key))
	r.Int(int64(min(cmd.key, 1)))
	r.Set(0)
}

// document writes a command as COMMAND DOCS shows it.
func (cmd *command) document(r *wire.Reply) {
	r.Text(cmd.name)
	r.Map(2)
	r.Text("summary")
	r.Text(cmd.summary)
	r.Text("group")
	r.Text("connection")
}
