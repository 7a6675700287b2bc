package room

import (
	"strconv"
	"strings"
	"time"
)

// words are the texts of the page in one language. %d and %s stand for numbers and durations.
type words struct {
	lang                      string
	group                     string // separates groups of three digits
	title, text               string
	place, ahead, wait        string // labels
	next, soon, unknown       string
	minute, minutes           string
	hour, hours               string
	kept, keep, turn, cookies string
	refused                   string
	early, opening            string // title and text before the opening
	here, opens               string // labels
	lot, paused               string
}

// languages are the languages of the page; the first is the default.
func languages() []words {
	return []words{
		{
			lang: "en", group: ",", title: "You are in the queue", text: "Many people are here at once. Everyone gets in, in order of arrival.",
			place: "Your place", ahead: "Ahead of you", wait: "Expected wait",
			next: "You are next.", soon: "less than a minute", unknown: "not known yet", minute: "about a minute", minutes: "about %d minutes",
			hour: "about an hour", hours: "about %d hours",
			kept:    "Your place is kept, but we cannot show it right now. This page refreshes by itself.",
			keep:    "Keep this page open: it refreshes by itself. If you close it for %s, you lose your place.",
			turn:    "It is your turn. One moment…",
			cookies: "Your browser blocks cookies for this site. Please allow them: a cookie keeps your place.",
			refused: "Your place was no longer valid, so you are at the end of the queue.",
			early:   "You are early", opening: "It has not opened yet. Keep this page open.", here: "Here now", opens: "Opens in",
			lot:    "Everyone who is here at the opening gets a place by lot: it does not matter who came first.",
			paused: "Nobody gets in for the moment. You keep your place.",
		},
		{
			lang: "de", group: ".", title: "Sie stehen in der Warteschlange", text: "Gerade sind sehr viele hier. Alle kommen an die Reihe, so wie sie gekommen sind.",
			place: "Ihr Platz", ahead: "Vor Ihnen", wait: "Voraussichtliche Wartezeit",
			next: "Sie sind als Nächstes dran.", soon: "weniger als eine Minute", unknown: "noch nicht bekannt", minute: "etwa eine Minute", minutes: "etwa %d Minuten",
			hour: "etwa eine Stunde", hours: "etwa %d Stunden",
			kept:    "Ihr Platz bleibt Ihnen, wir können ihn nur gerade nicht anzeigen. Diese Seite fragt von selbst wieder nach.",
			keep:    "Lassen Sie diese Seite offen: Sie aktualisiert sich von selbst. Ist sie %s lang geschlossen, geht der Platz verloren.",
			turn:    "Sie sind dran. Einen Moment …",
			cookies: "Ihr Browser speichert keine Cookies für diese Seite. Bitte erlauben Sie sie: Ihr Platz steht in einem.",
			refused: "Der Platz, den Ihr Browser vorgezeigt hat, galt nicht mehr. Sie stehen jetzt am Ende der Schlange.",
			early:   "Sie sind früh da", opening: "Es ist noch nicht geöffnet. Lassen Sie diese Seite offen.", here: "Gerade hier", opens: "Öffnet in",
			lot:    "Alle, die zur Öffnung hier sind, bekommen ihren Platz durch das Los: Wer zuerst kam, spielt keine Rolle.",
			paused: "Im Moment kommt niemand hinein. Ihr Platz bleibt Ihnen.",
		},
		{
			lang: "es", group: ".", title: "Está en la cola", text: "Ahora mismo hay mucha gente. Todos entran, por orden de llegada.",
			place: "Su lugar", ahead: "Delante de usted", wait: "Espera prevista",
			next: "Es el siguiente.", soon: "menos de un minuto", unknown: "aún no se sabe", minute: "alrededor de un minuto", minutes: "unos %d minutos",
			hour: "alrededor de una hora", hours: "unas %d horas",
			kept:    "Le guardamos el lugar, pero ahora no podemos mostrarlo. Esta página vuelve a preguntar sola.",
			keep:    "Deje esta página abierta: se actualiza sola. Si está cerrada durante %s, se pierde el lugar.",
			turn:    "Es su turno. Entrando…",
			cookies: "Su navegador no guarda cookies de este sitio. Debe permitirlas: su lugar se guarda en una.",
			refused: "El lugar que mostró su navegador ya no era válido. Ahora está al final de la cola.",
			early:   "Ha llegado pronto", opening: "Todavía no está abierto. Deje esta página abierta.", here: "Aquí ahora", opens: "Abre en",
			lot:    "Quienes estén aquí al abrir reciben su lugar por sorteo: no importa quién llegó primero.",
			paused: "Por el momento no entra nadie. Le guardamos el lugar.",
		},
		{
			lang: "fr", group: "\u202f", title: "Vous êtes dans la file", text: "Il y a beaucoup de monde en ce moment. Chacun entre à son tour, dans l’ordre d’arrivée.",
			place: "Votre place", ahead: "Devant vous", wait: "Attente prévue",
			next: "C’est bientôt à vous.", soon: "moins d’une minute", unknown: "pas encore connue", minute: "environ une minute", minutes: "environ %d minutes",
			hour: "environ une heure", hours: "environ %d heures",
			kept:    "Votre place est gardée, mais nous ne pouvons pas l’afficher pour le moment. Cette page redemande d’elle-même.",
			keep:    "Laissez cette page ouverte : elle s’actualise d’elle-même. Fermée pendant %s, elle perd sa place.",
			turn:    "C’est à vous. Un instant…",
			cookies: "Votre navigateur ne garde pas de cookies pour ce site. Merci de les autoriser : votre place est dans l’un d’eux.",
			refused: "La place présentée par votre navigateur n’était plus valable. Vous êtes maintenant au bout de la file.",
			early:   "Vous êtes en avance", opening: "Ce n’est pas encore ouvert. Laissez cette page ouverte.", here: "Ici en ce moment", opens: "Ouverture dans",
			lot:    "Chaque personne présente à l’ouverture reçoit sa place par tirage au sort : peu importe qui est arrivé en premier.",
			paused: "Personne n’entre pour le moment. Votre place est gardée.",
		},
	}
}

// language is the page's: the policy's, or the first known one of the browser's.
func (v *visit) language() words {
	all := languages()
	wanted := v.room.settings.Language
	if wanted == "" {
		wanted = v.req.Header.Get("Accept-Language")
	}
	if len(wanted) > 200 {
		wanted = wanted[:200]
	}
	for item := range strings.SplitSeq(wanted, ",") { // browsers list them by preference
		item, _, _ = strings.Cut(strings.TrimSpace(item), ";")
		primary, _, _ := strings.Cut(strings.ToLower(item), "-")
		for _, w := range all {
			if w.lang == primary {
				return w
			}
		}
	}
	return all[0]
}

// number formats a whole number with groups of digits.
func (w words) number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + w.group + digits[i:]
	}
	return digits
}

// about formats a wait, rounded up: to minutes, beyond ten to five minutes, beyond two hours to
// hours.
func (w words) about(d time.Duration) string {
	minutes := int64((d + time.Minute - 1) / time.Minute)
	switch {
	case d <= 0:
		return w.unknown
	case d < 45*time.Second:
		return w.soon
	case minutes > 120:
		return strings.Replace(w.hours, "%d", strconv.FormatInt((minutes+59)/60, 10), 1)
	case minutes > 10:
		minutes = (minutes + 4) / 5 * 5
	}
	switch minutes {
	case 1:
		return w.minute
	case 60:
		return w.hour
	}
	return strings.Replace(w.minutes, "%d", strconv.FormatInt(minutes, 10), 1)
}

// span formats a duration of the policy, like how long a place is kept.
func (w words) span(d time.Duration) string {
	if d%time.Minute == 0 {
		return strconv.FormatInt(int64(d/time.Minute), 10) + " min"
	}
	return strconv.FormatInt(seconds(d), 10) + " s"
}

// lines are the changing texts of the page, for the first view and for each refresh.
type lines struct {
	Place  string `json:"place"`
	Ahead  string `json:"ahead"`
	Wait   string `json:"wait"`
	Status string `json:"status"` // a sentence for screen readers; may be empty
	Done   int64  `json:"done"`   // percent

	Announce string `json:"announce,omitempty"` // what the operator announces; may be empty
}

// lines returns the changing texts for a visitor.
func (v *visit) lines(t reply) lines {
	w := v.language()
	l := w.lines(t)
	if v.room.settings.Pause && t.State == "waiting" {
		l.Wait, l.Status = w.unknown, w.paused
	}
	l.Announce = v.room.settings.Announce
	return l
}

func (w words) lines(t reply) lines {
	if t.State == "before" {
		return lines{Place: "–", Ahead: w.number(t.Waiting), Wait: w.about(t.opensIn), Status: w.lot}
	}
	if t.State == "kept" {
		return lines{Place: "–", Ahead: "–", Wait: "–", Status: w.kept}
	}
	l := lines{Place: w.number(t.Place), Ahead: w.number(t.Ahead), Wait: w.about(t.wait), Done: 100}
	if t.first > 0 {
		l.Done = max(0, 100-(100*t.Ahead+t.first-1)/t.first)
	}
	if t.Ahead == 0 {
		l.Status = w.next
	}
	return l
}
