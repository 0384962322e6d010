package caddy

import (
	"encoding/json"
	"errors"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

// A Caddyfile has no place for tls.session_tickets, and a global option cannot add to the app tls. So the option makes
// an app of its own, and the adapter `rejoin` moves it to where it belongs.

func init() {
	httpcaddyfile.RegisterGlobalOption(name, parseOption)
	caddyconfig.RegisterAdapter(name, adapter{caddyfile.Adapter{ServerType: httpcaddyfile.ServerType{}}})
	caddy.RegisterModule(misplaced{})
}

// parseOption reads
//
//	rejoin [<context>] {
//	    socket <path>
//	    user   <name>
//	}
func parseOption(d *caddyfile.Dispenser, _ any) (any, error) {
	d.Next()
	keys := new(Keys)
	if d.NextArg() {
		keys.Context = d.Val()
	}
	if d.NextArg() {
		return nil, d.ArgErr()
	}
	for d.NextBlock(0) {
		option := d.Val()
		var into *string
		switch option {
		case "socket":
			into = &keys.Socket
		case "user":
			into = &keys.User
		default:
			return nil, d.Errf("rejoin has the options socket and user, and not %s", option)
		}
		if !d.AllArgs(into) {
			return nil, d.ArgErr()
		}
	}
	value, err := json.Marshal(keys)
	return httpcaddyfile.App{Name: name, Value: value}, err
}

// adapter is Caddy's own for Caddyfiles, and moves what the option said.
type adapter struct{ caddyfile.Adapter }

// Adapt is for Caddy.
func (a adapter) Adapt(body []byte, options map[string]any) ([]byte, []caddyconfig.Warning, error) {
	adapted, warnings, err := a.Adapter.Adapt(body, options)
	if err != nil {
		return nil, warnings, err
	}
	moved, err := move(adapted)
	return moved, warnings, err
}

func move(adapted []byte) ([]byte, error) {
	var config, apps, tickets, source map[string]json.RawMessage
	if err := json.Unmarshal(adapted, &config); err != nil {
		return nil, err
	}
	if err := in(config, "apps", &apps); err != nil || apps[name] == nil {
		return adapted, err
	}
	if err := in(apps, name, &source); err != nil {
		return nil, err
	}
	delete(apps, name)
	source["provider"] = json.RawMessage(`"` + name + `"`)
	tls := map[string]json.RawMessage{}
	if err := in(apps, "tls", &tls); err != nil {
		return nil, err
	}
	if err := in(tls, "session_tickets", &tickets); err != nil {
		return nil, err
	}
	if tickets == nil {
		tickets = map[string]json.RawMessage{}
	}
	for _, step := range []struct {
		into  map[string]json.RawMessage
		name  string
		value any
	}{{tickets, "key_source", source}, {tls, "session_tickets", tickets}, {apps, "tls", tls}, {config, "apps", apps}} {
		value, err := json.Marshal(step.value)
		if err != nil {
			return nil, err
		}
		step.into[step.name] = value
	}
	return json.Marshal(config)
}

func in(object map[string]json.RawMessage, name string, into *map[string]json.RawMessage) error {
	if object[name] == nil {
		return nil
	}
	return json.Unmarshal(object[name], into)
}

// misplaced is the app that the option makes if the adapter is not used.
type misplaced struct{}

// CaddyModule is for Caddy.
func (misplaced) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: name, New: func() caddy.Module { return new(misplaced) }}
}

// UnmarshalJSON accepts what the option says, so that Provision can say what is wrong.
func (misplaced) UnmarshalJSON([]byte) error { return nil }

// Provision fails.
func (misplaced) Provision(caddy.Context) error {
	return errors.New("a Caddyfile with the option rejoin needs the adapter of this name: caddy run --config Caddyfile --adapter rejoin")
}

// Start is for Caddy, which does not come so far.
func (misplaced) Start() error { return nil }

// Stop is for Caddy.
func (misplaced) Stop() error { return nil }
