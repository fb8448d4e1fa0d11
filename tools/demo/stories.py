"""A grammar of short stories: an opening, one of sixteen small troubles with its ending, and a last line."""
import random
import zlib

import words

ADJECTIVES = "little young small brave curious kind shy cheerful clever gentle merry quiet".split()
PLACES = [  # (where the hero lives, a place nearby)
    ("at the edge of a green forest", "the forest"), ("in a small village", "the market"),
    ("by a quiet river", "the river"), ("on a windy hill", "the hill"), ("near a blue lake", "the lake"),
    ("in an old garden", "the garden"), ("beside the sea", "the beach"), ("in a sunny valley", "the meadow"),
    ("under a tall oak tree", "the old oak"), ("at the end of a long lane", "the lane"),
]
OPENINGS = [
    "Once upon a time, {a_hero} named {H} lived {home}.",
    "There was once {a_hero} named {H} who lived {home}.",
    "{H} was {a_hero} who lived {home}.",
    "Long ago, {a_hero} called {H} lived {home}.",
]
HABITS = [
    "Every morning {H} walked to {place} to say hello to the sun.",
    "{H} liked to sing while the day was still cool.",
    "More than anything, {H} loved warm soup and good company.",
    "{H} knew every path around {place}.",
    "",
    "",
]
# Each trouble is a list of sentences, each sentence a list of wordings.
PLOTS = [
    [["One day {H} lost {his} red scarf in the wind.", "One windy day a red scarf flew away from {H}."],
     ["{H} looked behind every bush, but it was nowhere to be seen.", "{H} looked high and low and could not find it."],
     ["Then {F} the {f} pointed up at a tall tree.", "Then {F} the {f} saw something red in a tree."],
     ["Together they shook the branch, and the scarf floated down.",
      "{F} climbed up and gently pulled the scarf free."],
     ["{H} wrapped the scarf around them both.", "{H} thanked {F} and never forgot to tie a good knot again."]],
    [["One evening {H} could not find the way home.", "One evening thick fog came, and {H} got lost."],
     ["Every path looked the same in the dark.", "{H} turned left and right, but nothing looked right."],
     ["A small light came nearer, and behind it was {F} the {f}.", "Then {F} the {f} came along with a lantern."],
     ["\"Follow me,\" said {F}, and they walked side by side.", "\"Do not worry,\" said {F}, \"I know this path.\""],
     ["Soon {H} was home, and the two shared a cup of warm tea.", "Before long {H} could see {his} own front door."]],
    [["One day {H} wanted to bake a cake, but there was no honey left.",
      "One day {H} began to bake a cake and found the honey jar empty."],
     ["{H} went to {place} to look for some.", "So {H} set out for {place} with a small basket."],
     ["There {H} met {F} the {f}, who had plenty of honey but no flour.",
      "On the way {H} met {F} the {f}, who had honey but no flour."],
     ["They put everything together and baked one big cake.",
      "\"Let us share,\" said {F}, and they baked the cake together."],
     ["It was the best cake that {H} had ever tasted.", "The cake was sweet, and it was even sweeter with a friend."]],
    [["One afternoon it began to rain, and {H} had no umbrella.",
      "One afternoon dark clouds came, and soon it was raining hard."],
     ["{H} hid under a leaf, but the leaf was far too small.", "{H} ran and ran, but {he} was getting wet."],
     ["{F} the {f} saw this and held out a big umbrella.", "\"Come in here!\" called {F} the {f} from a dry cave."],
     ["They listened to the rain and told each other jokes.", "They sat close together and counted the drops."],
     ["When the sun came back, there was a rainbow over {place}.",
      "At last the rain stopped, and a rainbow stood over {place}."]],
    [["One night {H} heard a strange noise outside.", "One night a strange sound woke {H}."],
     ["It went tap, tap, tap, and {H} was afraid.", "Tap, tap, tap, it went, and {H} hid under the blanket."],
     ["But {H} took a deep breath and opened the door.", "Then {H} was brave and looked out of the window."],
     ["It was only {F} the {f}, who had come to bring a gift.",
      "It was only {F} the {f}, who was looking for a warm place to sleep."],
     ["They laughed about it until the morning.", "{H} laughed and asked {F} to come in."]],
    [["One day {H} found a shiny key near {place}.", "One morning a shiny key lay on the ground near {place}."],
     ["{H} tried it on every door, but it did not fit.", "It fitted no door that {H} knew."],
     ["\"That is my key!\" cried {F} the {f}, who had looked for it all day.",
      "Then {H} met {F} the {f}, who was looking sadly at the ground."],
     ["{H} gave the key back at once.", "{H} held out the key, and {F} jumped for joy."],
     ["{F} opened an old box full of books, and they read until sunset.",
      "With the key {F} opened a small music box, and the two danced."]],
    [["One day {H} wanted to cross the river, but the bridge was broken.",
      "One day a storm broke the little bridge, and {H} could not cross the river."],
     ["The water was cold and fast.", "{H} was too small to jump so far."],
     ["{F} the {f} had an idea and rolled a log to the water.", "\"We can build a new one,\" said {F} the {f}."],
     ["They worked all day and did not give up.", "Piece by piece they made a fine new bridge."],
     ["Now everyone could cross the river, and all were glad.",
      "In the evening they walked across it together, proud and tired."]],
    [["One spring {H} planted a tiny seed.", "One day {H} found a tiny seed and put it into the ground."],
     ["Day after day nothing happened, and {H} grew sad.", "{H} waited and waited, but nothing came up."],
     ["\"Give it water and time,\" said {F} the {f}.", "{F} the {f} told {H} to be patient."],
     ["So {H} watered it every morning.", "{H} sang to the seed every evening."],
     ["At last a yellow flower opened, as bright as the sun.", "In summer it was the tallest flower near {place}."]],
    [["One day {H} felt very alone.", "One day {H} had nobody to play with."],
     ["{H} wrote a letter that said, \"Who will be my friend?\"", "{H} made a paper boat and put a note in it."],
     ["The wind carried it far away to {F} the {f}.", "Far away, {F} the {f} found it and smiled."],
     ["The next day {F} knocked at the door with a bag of nuts.", "{F} came that same day to say hello."],
     ["From then on they played together every day.", "After that, {H} was never alone again."]],
    [["One winter day {H} had no wood left for the fire.", "One cold night the fire of {H} went out."],
     ["Snow lay deep around {place}.", "The wind was icy, and the snow was deep."],
     ["{F} the {f} came with a sled full of dry wood.", "{F} the {f} saw that there was no smoke and came at once."],
     ["Soon the fire was bright, and they cooked some soup.", "They made a new fire and warmed their feet."],
     ["Outside it was cold, but inside it was warm and merry.",
      "{H} said that a good friend is warmer than any fire."]],
    [["One day there was a big race around {place}.", "One day {H} joined a race around {place}."],
     ["{H} ran fast, but then saw {F} the {f} fall down.", "{H} was in front when {F} the {f} slipped and fell."],
     ["{H} stopped and helped {F} to stand up.", "{H} turned back and held out a hand."],
     ["They walked over the line together, last of all.", "Side by side they came in last."],
     ["But everyone cheered for them the loudest.", "Still, they got the biggest cheer of the day."]],
    [["One day {H} wanted to touch the moon.", "One night {H} looked up and wished to touch the moon."],
     ["{H} climbed the highest hill, but the moon was still too far.",
      "{H} stood on three boxes, but it was not enough."],
     ["\"Look down,\" said {F} the {f}, and pointed at the lake.",
      "{F} the {f} brought a bowl of water and put it on the ground."],
     ["There was the moon, round and bright in the water.", "In the water lay the moon, so close and so bright."],
     ["{H} touched it softly, and it danced.", "{H} put one finger in, and the moon laughed in little waves."]],
    [["One day {H} found an egg near {place}.", "One morning there was a lonely egg near {place}."],
     ["\"Whose egg is this?\" asked {H}, but nobody knew.", "{H} asked everyone, but nobody had lost an egg."],
     ["{H} kept it warm all night with the help of {F} the {f}.",
      "{F} the {f} brought soft grass, and they kept the egg warm."],
     ["In the morning it cracked, and a tiny bird looked out.", "Then, crack, a tiny bird came out and said hello."],
     ["They took it back to its nest, and its mother sang for them.",
      "They named it Sunny, and it sang to them every day."]],
    [["One day {H} broke a blue cup that belonged to {F} the {f}.",
      "One day {H} dropped a blue cup, and it was the cup of {F} the {f}."],
     ["At first {H} wanted to hide the pieces.", "{H} was sorry and did not know what to say."],
     ["But then {H} went to {F} and told the truth.", "But it is better to be honest, so {H} told {F} at once."],
     ["{F} was not angry, and they mended the cup with glue.",
      "\"Thank you for telling me,\" said {F}, and they fixed it together."],
     ["After that, they liked the cup even more.",
      "The cup had a thin line now, and they called it the line of friends."]],
    [["One day {H} could not sleep.", "One night {H} lay awake and could not sleep."],
     ["{H} counted to one hundred, but it did not help.", "The bed was too soft, and the night was too quiet."],
     ["So {H} went outside and met {F} the {f}, who could not sleep either.",
      "Then {F} the {f} came by and sat down next to the bed."],
     ["They looked at the stars and gave each one a name.", "{F} hummed a slow old song about the sea."],
     ["Before the last star had a name, they were both asleep.", "Soon {H} was asleep and dreamed of flying."]],
    [["One day {H} heard a cry for help from {place}.", "One day a small voice called for help near {place}."],
     ["{F} the {f} was stuck in a deep hole.", "There was {F} the {f}, stuck in the mud."],
     ["{H} was not strong, but {he} was clever.", "{H} pulled, but it was too hard."],
     ["{H} found a long rope and tied it to a tree.", "{H} called all the neighbors, and they pulled together."],
     ["Up came {F}, safe and very thankful.", "With one last pull {F} was free."]],
]
ENDINGS = [
    "And so they became the best of friends.", "That night {H} went to bed with a smile.",
    "From that day on, {H} and {F} were good friends.", "{H} had learned that helping others makes everyone happy.",
    "It was a day that {H} would always remember.", "And they all lived happily ever after.",
]


def article(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def pick_hero(rng):
    return rng.choice(words.ANIMALS if rng.random() < 0.7 else words.THINGS)


def story(rng, hero=None, name=None):
    """Four to eight sentences about the hero, a friend, one trouble and its ending.

    Each hero leans to a place, a friend and a trouble of its own. A greedy model tells the likeliest story; without
    the leaning it would be the same one for every hero.
    """
    hero = hero or pick_hero(rng)
    leaning = random.Random(zlib.crc32(hero.encode()))

    def choose(options):
        usual = leaning.choice(options)
        return usual if rng.random() < 0.6 else rng.choice(options)

    usual_name = choose(words.NAMES)
    name = name or usual_name
    home, place = choose(PLACES)
    plot, opening, adjective = choose(PLOTS), choose(OPENINGS), choose(ADJECTIVES)
    friend = choose([a for a in words.ANIMALS if a != hero])
    friend_name = choose([n for n in words.NAMES if n != name])
    he, his = ("he", "his") if name in words.BOYS else ("she", "her")
    slots = dict(H=name, F=friend_name, f=friend, he=he, his=his, home=home, place=place,
                 a_hero=article(adjective + " " + hero))
    parts = [opening, choose(HABITS)]
    parts += [choose(variants) for variants in plot]
    if rng.random() < 0.8:
        parts.append(choose(ENDINGS))
    return " ".join(part.format(**slots) for part in parts if part)
