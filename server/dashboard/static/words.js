// The texts of the pages. They are written in English where they are used; the other languages are those of the waiting room.
import de from './words-de.js'
import es from './words-es.js'
import fr from './words-fr.js'

const place = 'weir-language'
export const languages = { en: 'English', de: 'Deutsch', es: 'Español', fr: 'Français' }
const books = { de, es, fr }
export let language = 'en'

// t is a text in the reader's language. {0} and {1} stand for values.
export function t (text, ...values) {
  return (books[language]?.[text] || text).replace(/\{(\d)\}/g, (_, i) => values[i])
}

export function setLanguage (code) {
  if (!languages[code]) return
  language = code
  localStorage.setItem(place, code)
  document.documentElement.lang = code
}

const wanted = [localStorage.getItem(place), ...(navigator.languages || [])].map(l => (l || '').slice(0, 2).toLowerCase())
language = wanted.find(l => languages[l]) || 'en'
document.documentElement.lang = language
